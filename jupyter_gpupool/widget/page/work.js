/** What a session does for long, or cannot do any more. */
import { amount, duration } from './words.js';

/** What runs for so long is named, seconds. */
const LONG_SECONDS = 2;

/** Whether a CUDA error has ended all that the session can do. */
export function hasFailed({ usage }) {
  return Boolean(usage?.failure);
}

/** `100 %`, `100 % · forever, 14 s`. */
export function busyText(busy, holds, { usage }) {
  const text = `${Math.round(100 * busy)} %`;
  const long = holds && usage?.work === 'running' && usage.work_seconds >= LONG_SECONDS;
  return long ? `${text} · ${nameOf(usage)}, ${duration(usage.work_seconds)}` : text;
}

/** Sentences: failed, draining, stopped, out of memory. */
export function workNotes(view) {
  const { usage } = view;
  if (!usage) {
    return [];
  }
  const memory = usage.out_of_memory;
  return [
    stateNote(view),
    memory
      ? `out of memory: ${amount(memory.asked)} asked, the share has ${amount(memory.share)}, ${amount(memory.used)} used`
      : ''
  ].filter(Boolean);
}

function stateNote({ usage, held, released }) {
  if (usage.failure) {
    const kernel = usage.failed_kernel ? ` in kernel ${usage.failed_kernel}` : '';
    const cell = usage.failed_cell ? ` in cell ${usage.failed_cell}` : '';
    return `The GPU session failed${cell}: ${usage.failure_name}${kernel}. %gpu reset begins a new one; arrays in GPU memory are lost.`;
  }
  if (usage.work === 'draining' || (usage.work === 'running' && released?.draining)) {
    return `draining: ${nameOf(usage)} since ${duration(usage.work_seconds)}`;
  }
  return usage.work === 'stopped' && !held
    ? `${nameOf(usage)} is stopped; it goes on when a GPU is attached.`
    : '';
}

function nameOf(usage) {
  return usage.kernel || 'work without a name';
}
