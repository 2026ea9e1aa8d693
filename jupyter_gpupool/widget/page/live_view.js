/** One view of a kernel's GPU, where the page can ask the server. */
import { chart } from './chart.js';
import { bar, button, element, setAttribute, setHidden, setItems, setText } from './elements.js';
import { sharedUsage } from './shared_usage.js';
import { amount, countdownText, duration, notesOf, shareText, stateText } from './words.js';
import { busyText, hasFailed, workNotes } from './work.js';

const HOLDING = new Set(['attached', 'warned']);
/** How far outside of what can be seen a view is kept up to date, so that it is when it comes. */
const MARGIN = '100px';
/** How long the answer to a button stays. */
const SAID_MS = 10000;

/** Shows a kernel in `el`; `lost(error)` when the server has no such kernel. Returns what ends it. */
export function liveView(el, server, kernel, lost) {
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
  let latest = null;
  let said = { text: '', until: 0 };
  let ended = false;

  async function act(method, verb, body) {
    for (const each of Object.values(buttons)) {
      each.disabled = true;
    }
    try {
      await shared.act(method, verb, body);
      said = { text: '', until: 0 };
    } catch (error) {
      said = { text: error.message, until: performance.now() + SAID_MS };
    }
    for (const each of Object.values(buttons)) {
      each.disabled = false;
    }
    if (!ended) {
      setText(message, said.text);
    }
  }

  const buttons = {
    keep: button('Keep', () => act('POST', 'keep', {})),
    undo: button('Undo', () => act('POST', 'undo', {})),
    attach: button('Attach', () => act('POST', 'attach', asBefore(latest))),
    leave: button('Leave queue', () => act('DELETE', 'queue')),
    detach: button('Detach', () => act('POST', 'detach', {}))
  };
  buttons.keep.title = 'Put the release off, as long as the server does by default';
  const head = element('div', 'jp-GpuUsage-head');
  const actions = element('span', 'jp-GpuUsage-actions');
  actions.append(...Object.values(buttons));
  head.append(state, countdown, share, actions);
  root.append(head, compute.row, memory.row, line.canvas, traffic, notes, message);

  const view = {
    draw(now, first) {
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
      const holds = HOLDING.has(usage.state);
      const last = samples[samples.length - 1];
      const busy = holds && last ? last.utilization : 0;
      const used = usage.usage?.memory_bytes ?? 0;
      const granted = usage.share ? usage.share.mib * usage.share.count * 1048576 : 0;
      // First: it reads the theme's colours, which is cheap while nothing has been written.
      line.draw(samples, granted);
      const failed = hasFailed(usage);
      setAttribute(root, 'data-state', failed ? 'failed' : usage.notice ? 'warned' : usage.state);
      setText(state, failed ? 'failed' : stateText(usage));
      setText(countdown, countdownText(usage));
      setText(share, usage.share ? `${usage.software ? 'software GPU · ' : ''}${shareText(usage.share)}` : '');
      compute.set(busy, busyText(busy, holds, usage));
      memory.set(
        granted ? used / granted : 0,
        granted ? `${amount(used)} of ${amount(granted)}` : `${amount(used)} kept`
      );
      setText(
        traffic,
        holds && last
          ? `to device ${amount(last.to_device_bps)}/s · from device ${amount(last.from_device_bps)}/s`
          : ''
      );
      setItems(notes, [...workNotes(usage), ...notesOf(usage)]);
      const free = !usage.held && usage.state !== 'queued' && !usage.returning;
      const undoable = free ? (usage.released?.undo_seconds ?? 0) : 0;
      setHidden(keep, usage.state !== 'warned' || usage.notice !== null);
      setHidden(undo, !undoable);
      setHidden(attach, !free);
      setHidden(leave, usage.state !== 'queued');
      setHidden(detach, !usage.held);
      setText(undo, undoable ? `Undo (${duration(undoable)})` : 'Undo');
      setAttribute(undo, 'aria-label', 'Undo the release');
      setText(attach, attachText(usage));
      setText(message, now.problem || (performance.now() < said.until ? said.text : ''));
    }
  };

  const number = shared.join(view);
  root.setAttribute('aria-label', `GPU use of this kernel${number > 1 ? `, view ${number}` : ''}`);
  el.append(root);
  const seen = new IntersectionObserver(
    entries => shared.show(view, entries[entries.length - 1].isIntersecting),
    { rootMargin: MARGIN }
  );
  seen.observe(root);

  function finish() {
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

/** The share that the kernel had last; without one the server takes its default. */
function asBefore(usage) {
  const freed = usage?.released?.freed;
  return freed ? { share: freed.milli / 1000, count: freed.count } : {};
}

function attachText(usage) {
  const { share, count } = asBefore(usage);
  return share ? `Attach ${count > 1 ? `${count} × ` : ''}${share}` : 'Attach';
}
