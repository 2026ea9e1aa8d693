/** One view of a kernel's GPU, where the page can ask the server. */
import type { GpuPool } from '../api/types';
import { hasFailed, holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import { formatBytes, formatGuess, formatRate } from '../text/format';
import { shareSentence, shareText } from '../text/words';
import { chart } from './chart';
import {
  bar,
  button,
  element,
  setAttribute,
  setHidden,
  setItems,
  setText
} from './elements';
import { ENGLISH } from './english';
import { Refused, type IServer } from './server';
import { sharedUsage, type INow } from './sharedUsage';
import {
  busyText,
  countdownText,
  coveredText,
  notesOf,
  stateText
} from './words';

/** How far outside of what can be seen a view is kept up to date, so that it is when it comes. */
const MARGIN = '100px';
/** How long the answer to a button stays. */
const SAID_MS = 10000;

/** Shows a kernel in `el`; `lost(error)` when the server has no such kernel. Returns what ends it. */
export function liveView(
  el: HTMLElement,
  server: IServer,
  kernel: string,
  lost: (error: Refused) => void
): () => void {
  const shared = sharedUsage(server, kernel);
  const root = element('section', 'jp-GpuUsage');
  const state = element('span', 'jp-GpuUsage-state');
  state.setAttribute('role', 'status');
  const countdown = element('span', 'jp-GpuUsage-countdown');
  const share = element('span', 'jp-GpuUsage-share');
  const compute = bar('Compute');
  const memory = bar('Memory');
  const line = chart();
  const traffic = element('div', 'jp-GpuUsage-traffic');
  const notes = element('ul', 'jp-GpuUsage-notes');
  const message = element('div', 'jp-GpuUsage-message');
  message.setAttribute('role', 'alert');
  let latest: GpuPool.IUsageAnswer | null = null;
  let said = { text: '', until: 0 };
  let ended = false;
  let acting = false;
  /** The server has refused to take the GPU from a cell that runs. */
  let force = false;

  async function act(
    method: string,
    verb: string,
    body?: object
  ): Promise<void> {
    if (acting) {
      return;
    }
    busy(true);
    let text = '';
    force = false;
    try {
      const usage = await shared.act(method, verb, body);
      if (verb === 'detach' && usage?.held) {
        // Code that runs keeps the share for now.
        text = usage.message ?? '';
      }
    } catch (error) {
      text = error instanceof Error ? error.message : String(error);
      // Pressed once more, it takes the GPU from the cell that runs.
      force = error instanceof Refused && error.reason === 'running';
    }
    said = { text, until: performance.now() + SAID_MS };
    busy(false);
    if (!ended) {
      setText(message, said.text);
      nameDetach();
    }
  }

  /** A button that is disabled would lose the focus of whoever has pressed it by key. */
  function busy(yes: boolean): void {
    acting = yes;
    for (const each of Object.values(buttons)) {
      setAttribute(each, 'aria-disabled', String(yes));
    }
  }

  function nameDetach(): void {
    const anyway = force && performance.now() < said.until;
    setText(buttons.detach, anyway ? 'Detach anyway' : 'Detach');
  }

  /** Where the button with the focus is not shown any more, the next one has it. */
  function keepFocus(focused: Element | null): void {
    const all = Object.values(buttons);
    if (all.some(each => each.hidden && each === focused)) {
      all.find(each => !each.hidden)?.focus();
    }
  }

  const buttons = {
    keep: button('Keep', () => void act('POST', 'keep', {})),
    undo: button('Undo', () => void act('POST', 'undo', {})),
    attach: button(
      'Attach',
      () => void act('POST', 'attach', asBefore(latest))
    ),
    leave: button('Leave queue', () => void act('DELETE', 'queue')),
    detach: button('Detach', () => {
      const anyway = force && performance.now() < said.until;
      void act('POST', 'detach', anyway ? { force: true } : {});
    })
  };
  buttons.keep.title =
    'Put the release off, as long as the server does by default';
  const head = element('div', 'jp-GpuUsage-head');
  const actions = element('span', 'jp-GpuUsage-actions');
  actions.append(...Object.values(buttons));
  head.append(state, countdown, share, actions);
  root.append(
    head,
    compute.row,
    memory.row,
    line.canvas,
    traffic,
    notes,
    message
  );

  const view = {
    draw(now: INow, first: boolean) {
      if (now.gone) {
        finish();
        lost(now.gone);
        return;
      }
      const { usage, samples } = now;
      setAttribute(state, 'aria-live', first ? 'polite' : 'off');
      if (!usage) {
        setText(message, now.problem);
        return;
      }
      latest = usage;
      const { undo, keep, attach, leave, detach } = buttons;
      const holding = holds(usage);
      const last = samples[samples.length - 1];
      const busy = holding && last ? last.utilization : 0;
      const used = usage.usage?.memory_bytes ?? 0;
      const granted = usage.share
        ? usage.share.mib * usage.share.count * 1048576
        : 0;
      // First: it reads the theme's colours, which is cheap while nothing has been written.
      line.draw(samples, granted);
      setAttribute(root, 'data-state', shownState(usage));
      setText(state, stateText(usage));
      setText(countdown, countdownText(usage));
      setText(
        share,
        usage.share
          ? `${usage.software ? 'software GPU · ' : ''}${shareSentence(usage.share, ENGLISH)}`
          : ''
      );
      compute.set(busy, busyText(busy, usage));
      memory.set(
        granted ? used / granted : 0,
        granted
          ? `${formatBytes(used)} of ${formatBytes(granted)}`
          : `${formatBytes(used)} kept`
      );
      setText(traffic, last ? captionOf(last, holding) : '');
      setItems(notes, notesOf(usage));
      const free = !usage.held && usage.state !== 'queued' && !usage.returning;
      const undoable = free ? (usage.released?.undo_seconds ?? 0) : 0;
      const focused = document.activeElement;
      setHidden(keep, usage.state !== 'warned' || Boolean(usage.notice));
      setHidden(undo, !undoable);
      setHidden(attach, !free);
      setHidden(leave, usage.state !== 'queued');
      setHidden(detach, !usage.held);
      nameDetach();
      keepFocus(focused);
      setText(undo, undoable ? `Undo (${formatGuess(undoable)})` : 'Undo');
      setAttribute(undo, 'aria-label', 'Undo the release');
      setText(attach, attachText(usage));
      setText(
        message,
        now.problem || (performance.now() < said.until ? said.text : '')
      );
    }
  };

  const number = shared.join(view);
  root.setAttribute(
    'aria-label',
    `GPU use of this kernel${number > 1 ? `, view ${number}` : ''}`
  );
  el.append(root);
  const seen = new IntersectionObserver(
    entries => shared.show(view, entries[entries.length - 1].isIntersecting),
    { rootMargin: MARGIN }
  );
  seen.observe(root);

  function finish(): void {
    if (!ended) {
      ended = true;
      seen.disconnect();
      line.dispose();
      shared.leave(view);
      root.remove();
    }
  }
  return finish;
}

/** Below the chart: what it covers, and while a share is held what travels now. */
function captionOf(last: GpuPool.IUsageSample, holding: boolean): string {
  const covered = coveredText(last.t, holding);
  return holding
    ? `${covered} · to device ${formatRate(last.to_device_bps)} · from device ${formatRate(last.from_device_bps)}`
    : covered;
}

/** The share that the kernel had last, for the same project; without one the server takes its defaults. */
function asBefore(usage: GpuPool.IUsageAnswer | null): object {
  const freed = usage?.released?.freed;
  if (!freed) {
    return {};
  }
  const share = { share: formatMilli(freed.milli), count: freed.count };
  return usage.project ? { ...share, project: usage.project } : share;
}

function attachText(usage: GpuPool.IUsageAnswer): string {
  const freed = usage.released?.freed;
  return freed ? `Attach ${shareText(freed)}` : 'Attach';
}

/** Which colour the state has. */
function shownState(usage: GpuPool.IUsageAnswer): string {
  return hasFailed(usage) ? 'failed' : usage.notice ? 'warned' : usage.state;
}
