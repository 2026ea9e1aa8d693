import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';
import { hasFailed } from '../figures/session';
import { formatShare, parseShare, type ShareProblem } from '../figures/share';
import { formatMib } from './format';
import { firstClause, isKnown, render } from './sentence';

/*
 * Ids of the contract to the words a person reads, in one place so that
 * every view uses the same ones.
 */

/** The state that a person is shown: a session that failed is not just held. */
export type ShownState = GpuPool.State | 'failed';

export function shownState(kernel: GpuPool.IKernel | undefined): ShownState {
  return hasFailed(kernel) ? 'failed' : (kernel?.state ?? 'none');
}

export function stateWord(state: ShownState, trans: TranslationBundle): string {
  switch (state) {
    case 'none':
      return trans.__('no GPU');
    case 'queued':
      return trans.__('queued');
    case 'attached':
      return trans.__('attached');
    case 'warned':
      return trans.__('goes back soon');
    case 'parked':
      return trans.__('no GPU, memory kept');
    case 'closed':
      return trans.__('closed');
    case 'lost':
      return trans.__('lost');
    case 'failed':
      return trans.__('failed');
  }
}

/** One sentence for why a kernel no longer holds its share. */
export function reasonSentence(reason: string): string {
  const code = `reason.${reason}`;
  // A newer server may know more reasons than this page.
  return isKnown(code) ? sentence(render({ code, params: {} })) : reason;
}

/** For whom a share is asked back, without the seconds that are left. */
export function noticeSentence(
  kernel: GpuPool.ISession,
  trans: TranslationBundle
): string {
  const explanation = forWhom(kernel);
  return kernel.notice?.returns
    ? trans.__(
        '%1 What is in GPU memory is kept; calls wait until the GPU comes again.',
        sentence(explanation)
      )
    : trans.__('%1 What is in GPU memory is kept.', sentence(explanation));
}

/** The first part of the pool's sentence; what becomes of the memory we say. */
export function forWhom(kernel: GpuPool.ISession): string {
  return kernel.notice ? firstClause(kernel.notice.said) : '';
}

/** The pool's sentences may lack the full stop that another one needs. */
function sentence(text: string): string {
  return text === '' || /[.!?]$/.test(text) ? text : `${text}.`;
}

/** `Take 0.3 now`, `Take 2 × 0.5 now`. */
export function takeText(
  ask: GpuPool.IAttachOptions,
  trans: TranslationBundle
): string {
  const count = ask.count ?? 1;
  return trans.__(
    'Take %1 now',
    count > 1 ? `${count} × ${ask.share}` : ask.share
  );
}

export function shareProblem(
  problem: ShareProblem,
  trans: TranslationBundle
): string {
  switch (problem) {
    case 'empty':
      return trans.__('Say how much: 0.2, 20% or 2560MiB.');
    case 'syntax':
      return trans.__('Not a share. Write 0.2, 20%, 2560MiB or 2.5GiB.');
    case 'zero':
      return trans.__('Zero is no share; detach gives it back.');
    case 'too-fine':
      return trans.__('Too fine: steps are 0.001 of a GPU or 1 MiB.');
    case 'too-large':
      return trans.__('A share is at most 1, a whole GPU.');
  }
}

/** What is wrong with a typed share, or null. */
export function checkShare(
  text: string,
  trans: TranslationBundle
): string | null {
  const result = parseShare(text);
  return result.ok ? null : shareProblem(result.problem, trans);
}

/** What a request says beside how much: ` (2 GPUs, hard cap)`; empty: all is as by default. */
export function besideText(
  terms: Partial<Omit<GpuPool.IAttachOptions, 'share'>>,
  trans: TranslationBundle
): string {
  const { count = 1, nodes, project, strict, ...rest } = terms;
  const text = [
    count > 1 && trans.__('%1 GPUs', count),
    nodes === 'one' && trans.__('on one node'),
    nodes === 'any' && trans.__('on any nodes'),
    project,
    strict && trans.__('hard cap'),
    // Such as filters: nothing here shows them, and they are asked for.
    Object.values(rest).some(value => value !== undefined) &&
      trans.__('and more')
  ]
    .filter(Boolean)
    .join(', ');
  return text && ` (${text})`;
}

/** `0.2`, `2 × 0.2`. */
export function shareText(share: GpuPool.IShare): string {
  const one = formatShare(share.milli);
  return share.count > 1 ? `${share.count} × ${one}` : one;
}

/** `0.2 GPU · 1.6 GiB`. */
export function shareSentence(
  share: GpuPool.IShare,
  trans: TranslationBundle
): string {
  const each = formatMib(share.mib);
  const memory = share.count > 1 ? `${share.count} × ${each}` : each;
  return trans.__('%1 GPU · %2', shareText(share), memory);
}

/** `auto 2 × 0.2`; short, as the name of the kernel stands beside it. */
export function autoText(
  auto: GpuPool.IAuto,
  trans: TranslationBundle
): string {
  if (auto.share === null) {
    return trans.__('auto');
  }
  return auto.count > 1
    ? trans.__('auto %1', `${auto.count} × ${auto.share}`)
    : trans.__('auto %1', auto.share);
}

/** Where a session's memory is, as far as it matters now; or null. */
export function memoryText(
  kernel: GpuPool.ISession,
  trans: TranslationBundle
): string | null {
  const memory = kernel.memory;
  switch (memory?.activity) {
    case 'parking':
      return memory?.place === 'host'
        ? trans.__('Memory: being moved from host memory to disk')
        : trans.__('Memory: being moved off its GPU');
    case 'resuming':
      return trans.__('Memory: being brought back to a GPU');
    case 'moving':
      return trans.__('Memory: being moved to another node');
    default:
      break;
  }
  if (kernel.state !== 'parked' && kernel.state !== 'queued') {
    return null;
  }
  switch (memory?.place) {
    case 'device':
      return trans.__('Memory: on the GPU');
    case 'host':
      return trans.__('Memory: in host memory');
    case 'image':
      return trans.__('Memory: on disk');
    default:
      return null;
  }
}

/** How the compute share is kept, where one is held; or null. */
export function enforcementText(
  kernel: GpuPool.IKernel,
  trans: TranslationBundle
): string | null {
  const memory = kernel.memory;
  if (!memory || kernel.share === null || memory.enforcement === 'none') {
    return null;
  }
  if (memory.strict) {
    return trans.__('Compute share: a hard cap (%1)', memory.enforcement);
  }
  return memory.enforcement === 'hard'
    ? trans.__('Compute share: kept by the GPU')
    : trans.__('Compute share: kept by turns');
}

/** All notes about a session as lines, for a tooltip. */
export function sessionNotes(
  kernel: GpuPool.IKernel | undefined,
  trans: TranslationBundle
): string[] {
  if (kernel === undefined) {
    return [];
  }
  const notes = [
    kernel.notice ? noticeSentence(kernel, trans) : null,
    memoryText(kernel, trans),
    enforcementText(kernel, trans)
  ];
  return [
    ...notes.filter(note => note !== null),
    ...(kernel.memory?.obstacles ?? []).map(render)
  ];
}

/** Whether a share is used; one whose lease has ended may be for some seconds. */
export function useText(
  share: GpuPool.IDeviceShare,
  trans: TranslationBundle
): string {
  if (share.state === 'releasing') {
    return trans.__('going back');
  }
  return share.in_use ? trans.__('in use') : trans.__('reserved');
}

/** Whose share or request this is, for a bar or a list. */
export function ownerText(
  share: Pick<GpuPool.IDeviceShare, 'mine' | 'user' | 'label'>,
  trans: TranslationBundle
): string {
  const owner = share.mine ? trans.__('you') : userText(share, trans);
  return share.label ? `${share.label} (${owner})` : owner;
}

/** A pool that hides its users names none but the reader. */
function userText(
  { user }: Pick<GpuPool.IDeviceShare, 'user'>,
  trans: TranslationBundle
): string {
  return user || trans.__('another user');
}

/** `jo waits for 0.8`, `3 wait for 1.4 in all`. */
export function waitsText(
  waiting: readonly GpuPool.IQueueEntry[],
  milli: number,
  trans: TranslationBundle
): string {
  const amount = formatShare(milli);
  if (waiting.length > 1) {
    return trans.__('%1 wait for %2 of it in all', waiting.length, amount);
  }
  return waiting[0].mine
    ? trans.__('You wait for %1 of it', amount)
    : trans.__('%1 waits for %2 of it', userText(waiting[0], trans), amount);
}
