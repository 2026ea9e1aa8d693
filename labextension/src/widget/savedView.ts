/** What stands where no live figures can come from: the last ones, and a way to ask the kernel for others. */
import { button, element, setText } from './elements';
import type { IWidgetModel } from './widgetModel';

/** A kernel that has not answered for so long is computing, or is not there. */
const PATIENCE_MS = 5000;

const ALONE =
  'This page has no way to the Jupyter server that runs the kernel, so the figures do not move; they are of';

/** Shows the text of `model` in `el`; `why` is a sentence about what is missing. Returns what ends it. */
export function savedView(
  model: IWidgetModel,
  el: HTMLElement,
  why = ''
): () => void {
  const root = element('section', 'jp-GpuUsage');
  root.setAttribute('aria-label', 'GPU use of this kernel');
  const text = element('pre', 'jp-GpuUsage-fallback');
  const note = element('div', 'jp-GpuUsage-message');
  note.setAttribute('role', 'status');
  let timer: number | undefined;

  function draw(): void {
    clearTimeout(timer);
    const taken = Number(model.get('taken_at'));
    const when = taken
      ? new Date(1000 * taken).toLocaleString()
      : 'an unknown time';
    setText(text, String(model.get('summary') ?? ''));
    setText(note, `${why || ALONE} ${when}.`);
    refresh.disabled = false;
  }

  const refresh = button('Refresh', () => {
    refresh.disabled = true;
    setText(note, 'The kernel is asked; it answers when it is free.');
    timer = window.setTimeout(() => {
      refresh.disabled = false;
      setText(
        note,
        'The kernel has not answered yet: it is computing, or it does not run any more.'
      );
    }, PATIENCE_MS);
    try {
      // Only on this click: messages of a kernel count as activity, and keep an idle GPU.
      model.send({ type: 'refresh' });
    } catch (error) {
      clearTimeout(timer);
      refresh.disabled = false;
      setText(
        note,
        `The kernel cannot be asked (${error instanceof Error ? error.message : String(error)}).`
      );
    }
  });
  refresh.hidden = false;

  root.append(text, note, refresh);
  el.append(root);
  model.on('change:taken_at', draw);
  draw();
  return () => {
    clearTimeout(timer);
    model.off('change:taken_at', draw);
    root.remove();
  };
}
