/**
 * What the server says of one kernel, asked once for all views of a page.
 *
 * The page asks the server, never the kernel: a busy kernel could not answer, and its
 * messages would count as activity and keep an idle GPU from going back.
 */
import { request } from './server.js';

/** Pauses between two questions while the kernel has or awaits a GPU, and while it does not. */
const LIVE_MS = 1000;
const RESTING_MS = 3000;
const SLOWEST_MS = 15000;
/** How long a chart reaches back. */
export const HISTORY_SECONDS = 300;

/* Each widget of a page is a copy of this module: what they share hangs at the page. */
const SHARED = Symbol.for('jupyter-gpupool.usage.2');

/** The one of this page for a kernel of a server. */
export function sharedUsage(server, kernel) {
  const all = (globalThis[SHARED] ??= new Map());
  const key = `${server.baseUrl} ${kernel}`;
  let shared = all.get(key);
  if (!shared) {
    shared = new SharedUsage(server, kernel, () => all.delete(key));
    all.set(key, shared);
  }
  return shared;
}

/**
 * Asks while a view can be seen, and lets those that can be seen draw together, once a frame.
 * A view that has shown nothing yet counts as one that is seen: no view is ever empty.
 *
 * A view has `draw(now, first)`: `now` is what is known, `first` whether it speaks for the others
 * to a screen reader.
 */
export class SharedUsage {
  constructor(server, kernel, ended) {
    this.server = server;
    this.path = `kernels/${encodeURIComponent(kernel)}`;
    this.ended = ended;
    /** view → {number, visible, drawn} */
    this.views = new Map();
    /** `at`: of the answer, by this page's clock, ms; `gone`: why no answer will come any more. */
    this.now = { usage: null, samples: [], problem: '', gone: null, at: 0 };
    this.pause = LIVE_MS;
    this.asked = -Infinity;
    this.timer = null;
    this.frame = null;
    this.asking = null;
    this.shown = () => this.arm();
    document.addEventListener('visibilitychange', this.shown);
  }

  /** The number of the view among those of the page, from 1. */
  join(view) {
    const taken = new Set([...this.views.values()].map(({ number }) => number));
    let number = 1;
    while (taken.has(number)) {
      number += 1;
    }
    this.views.set(view, { number, visible: false, drawn: false });
    this.arm();
    this.paint();
    return number;
  }

  leave(view) {
    this.views.delete(view);
    this.arm();
    if (this.views.size === 0) {
      document.removeEventListener('visibilitychange', this.shown);
      this.asking?.abort();
      this.ended();
    }
  }

  /** Whether a view is where a person can see it. */
  show(view, visible) {
    const entry = this.views.get(view);
    if (entry && entry.visible !== visible) {
      entry.visible = visible;
      this.arm();
      this.paint();
    }
  }

  /** Carries an action out and shows what became of it. Throws what `request` throws. */
  async act(method, verb, body) {
    await request(this.server, method, `${this.path}/${verb}`, body);
    // What is under way was asked before the action.
    this.asking?.abort();
    this.asking = null;
    this.pause = LIVE_MS;
    await this.ask();
  }

  wanted() {
    const looks = ({ visible, drawn }) => visible || !drawn;
    return !document.hidden && !this.now.gone && [...this.views.values()].some(looks);
  }

  /** Has a timer exactly while somebody looks and nothing is under way. */
  arm() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.wanted() && !this.asking) {
      const wait = Math.max(0, this.asked + this.pause - performance.now());
      this.timer = setTimeout(() => void this.ask(), wait);
    }
  }

  async ask() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.asking) {
      return;
    }
    const asking = (this.asking = new AbortController());
    this.asked = performance.now();
    const { samples } = this.now;
    const since = samples.length ? samples[samples.length - 1].t : 0;
    let next;
    try {
      const usage = await request(
        this.server,
        'GET',
        `${this.path}/usage?since=${since}`,
        undefined,
        asking.signal
      );
      next = { usage, samples: recent(samples, usage.samples), problem: '', gone: null };
      const lives = usage.held || usage.state === 'queued' || usage.returning || usage.released?.undo_seconds;
      this.pause = lives ? LIVE_MS : RESTING_MS;
    } catch (error) {
      // A server that does not know the kernel, or us, will not learn it by being asked again.
      next = { ...this.now, problem: error.message, gone: error.status === 404 ? error : null };
      this.pause = Math.min(2 * this.pause, SLOWEST_MS);
    }
    if (this.asking === asking) {
      this.asking = null;
      this.now = { ...next, at: performance.now() };
      this.paint();
      this.arm();
    }
  }

  /** All views that can be seen draw in the next frame; nothing is read from the page between. */
  paint() {
    if (this.frame !== null || !(this.now.usage || this.now.problem)) {
      return;
    }
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      let first = true;
      for (const [view, entry] of this.views) {
        if (entry.visible || !entry.drawn) {
          entry.drawn = true;
          view.draw(this.now, first && entry.visible);
          first &&= !entry.visible;
        }
      }
    });
  }
}

function recent(before, more) {
  const all = [...before, ...more];
  const newest = all.length ? all[all.length - 1].t : 0;
  return all.filter(sample => sample.t > newest - HISTORY_SECONDS);
}
