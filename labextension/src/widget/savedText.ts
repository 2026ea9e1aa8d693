import { element, setText } from './elements';

/** The last figures that a kernel had, as its `GpuUsage` wrote them. */
export interface ISaved {
  summary: string;
  /** Unix time in seconds; 0 if nobody knows it. */
  taken_at: number;
}

/** Figures that do not move, and a line about them. */
export interface ISavedText {
  readonly root: HTMLElement;
  /** Shows figures; `why` is a sentence about what is missing, and the beginning of one about their time. */
  draw(saved: ISaved, why: string): void;
  /** Puts another sentence in the place of the last one. */
  say(sentence: string): void;
}

export function savedText(): ISavedText {
  const root = element('section', 'jp-GpuUsage');
  root.setAttribute('aria-label', 'GPU use of this kernel');
  const text = element('pre', 'jp-GpuUsage-fallback');
  const note = element('div', 'jp-GpuUsage-message');
  note.setAttribute('role', 'status');
  root.append(text, note);
  const say = (sentence: string) => setText(note, sentence);
  return {
    root,
    draw({ summary, taken_at }, why) {
      const when = taken_at
        ? new Date(1000 * taken_at).toLocaleString()
        : 'an unknown time';
      setText(text, summary);
      say(`${why} ${when}.`);
    },
    say
  };
}
