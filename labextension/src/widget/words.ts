/** What the widget says of a session beside the words that all views share. */
import type { GpuPool } from '../api/types';
import { hasFailed, holds } from '../figures/session';
import {
  formatGuess,
  formatPercent,
  formatSpan,
  formatTimeOfDay
} from '../text/format';
import { render } from '../text/sentence';
import { memoryText, noticeSentence, stateWord } from '../text/words';
import { longWork, workNotes } from '../text/work';
import { ENGLISH } from './english';

/** States of which a notebook has room to say more than a word. */
const STATES: { readonly [state: string]: string } = {
  none: 'no GPU attached',
  warned: 'not used, goes back soon',
  parked: 'no GPU, memory kept'
};

/** The state, without what counts down: a screen reader says it when it changes. */
export function stateText(session: GpuPool.ISession): string {
  if (hasFailed(session)) {
    return stateWord('failed', ENGLISH);
  }
  if (session.notice) {
    return 'asked back for others';
  }
  if (session.returning) {
    return 'taken back for others, waits to come again';
  }
  if (session.silent) {
    return 'waits for the GPU pool, which does not answer';
  }
  const { state, queue } = session;
  const place = queue?.place ? `, place ${queue.place}` : '';
  // A newer server may know more states than this page.
  return `${STATES[state] ?? stateWord(state, ENGLISH) ?? state}${place}`;
}

/** What counts down, if something does. */
export function countdownText(session: GpuPool.ISession): string {
  const { state, notice, idle, queue } = session;
  const left = notice
    ? notice.seconds_left
    : state === 'warned'
      ? idle?.countdown
      : null;
  if (left !== null && left !== undefined) {
    return left > 0 ? `in ${formatGuess(left)}` : 'now';
  }
  const wait = queue?.eta_seconds;
  return state === 'queued' && wait ? `about ${formatGuess(wait)} to go` : '';
}

/** `100 %`, `100 % · forever, 14 s`. */
export function busyText(busy: number, session: GpuPool.ISession): string {
  const work = holds(session) ? longWork(session, ENGLISH) : null;
  return work
    ? `${formatPercent(busy)} · ${work.name}, ${formatSpan(work.seconds)}`
    : formatPercent(busy);
}

/** What the chart covers: the present, or up to when there was something to measure, Unix seconds. */
export function coveredText(newest: number, holding: boolean): string {
  return holding
    ? 'last five minutes'
    : `five minutes until ${formatTimeOfDay(1000 * newest)}`;
}

/** Sentences below the chart: what runs or failed, the queue, the idle ladder, a release, where memory is. */
export function notesOf(session: GpuPool.ISession): string[] {
  const memory = memoryText(session, ENGLISH);
  return [
    ...workNotes(session, ENGLISH).map(({ text }) => text),
    hasFailed(session)
      ? '%gpu reset begins a new one; arrays in GPU memory are lost.'
      : '',
    ...queueNotes(session),
    idleNote(session),
    releaseNote(session),
    memory ? `${memory}.` : '',
    ...(session.memory?.obstacles ?? []).map(render)
  ].filter(Boolean);
}

function queueNotes({ state, queue }: GpuPool.ISession): string[] {
  return state === 'queued' && queue
    ? [
        queue.reason,
        ...(queue.explanation?.helps ?? []).map(({ said }) => render(said))
      ]
    : [];
}

function idleNote(session: GpuPool.ISession): string {
  const { notice, state, idle } = session;
  if (notice) {
    return noticeSentence(session, ENGLISH);
  }
  return !idle || state === 'warned' || !idle.release_at || idle.seconds < 60
    ? ''
    : `Not used for ${formatSpan(idle.seconds)}; it goes back after ${formatSpan(idle.release_at)}.`;
}

function releaseNote(session: GpuPool.ISession): string {
  const { held, state, released, message } = session;
  return held || state === 'queued' ? '' : released?.message || message || '';
}
