/**
 * What the server says of one kernel, asked once for all views of a page.
 *
 * The page asks the server, never the kernel: a busy kernel could not answer, and its
 * messages would count as activity and keep an idle GPU from going back.
 */
import type { GpuPool } from '../api/types';
import { request, Refused, type IServer } from './server';

/** Pauses between two questions while the kernel has or awaits a GPU, and while it does not. */
const LIVE_MS = 1000;
const RESTING_MS = 3000;
const SLOWEST_MS = 15000;
/** How long a chart reaches back. */
export const HISTORY_SECONDS = 300;

/** What is known of the kernel. */
export interface INow {
  usage: GpuPool.IUsageAnswer | null;
  samples: readonly GpuPool.IUsageSample[];
  problem: string;
  /** Why no answer will come any more. */
  gone: Refused | null;
}

/** A view in the page. */
export interface IView {
  /** `first`: whether it speaks for the others to a screen reader. */
  draw(now: INow, first: boolean): void;
}

interface IEntry {
  number: number;
  visible: boolean;
  drawn: boolean;
}

/* Each widget of a page is a copy of this module: what they share hangs at the page. */
const SHARED = Symbol.for('jupyter-gpupool.usage.3');

/** The one of this page for a kernel of a server. */
export function sharedUsage(server: IServer, kernel: string): SharedUsage {
  const page = globalThis as { [SHARED]?: Map<string, SharedUsage> };
  const all = (page[SHARED] ??= new Map());
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
 */
export class SharedUsage {
  constructor(
    private readonly _server: IServer,
    kernel: string,
    private readonly _ended: () => void
  ) {
    this._path = `kernels/${encodeURIComponent(kernel)}`;
    document.addEventListener('visibilitychange', this._shown);
  }

  /** The number of the view among those of the page, from 1. */
  join(view: IView): number {
    const taken = new Set(
      [...this._views.values()].map(({ number }) => number)
    );
    let number = 1;
    while (taken.has(number)) {
      number += 1;
    }
    this._views.set(view, { number, visible: false, drawn: false });
    this._arm();
    this._paint();
    return number;
  }

  leave(view: IView): void {
    this._views.delete(view);
    this._arm();
    if (this._views.size === 0) {
      document.removeEventListener('visibilitychange', this._shown);
      this._asking?.abort();
      this._ended();
    }
  }

  /** Whether a view is where a person can see it. */
  show(view: IView, visible: boolean): void {
    const entry = this._views.get(view);
    if (entry && entry.visible !== visible) {
      entry.visible = visible;
      this._arm();
      this._paint();
    }
  }

  /** Carries an action out, shows and returns what became of it. Throws what `request` throws. */
  async act(
    method: string,
    verb: string,
    body?: object
  ): Promise<GpuPool.IUsageAnswer | null> {
    await request(this._server, method, `${this._path}/${verb}`, body);
    // What is under way was asked before the action.
    this._asking?.abort();
    this._asking = null;
    this._pause = LIVE_MS;
    await this._ask();
    return this._now.usage;
  }

  private _wanted(): boolean {
    const looks = ({ visible, drawn }: IEntry) => visible || !drawn;
    return (
      !document.hidden &&
      !this._now.gone &&
      [...this._views.values()].some(looks)
    );
  }

  /** Has a timer exactly while somebody looks and nothing is under way. */
  private _arm(): void {
    clearTimeout(this._timer);
    this._timer = undefined;
    if (this._wanted() && !this._asking) {
      const wait = Math.max(0, this._asked + this._pause - performance.now());
      this._timer = window.setTimeout(() => void this._ask(), wait);
    }
  }

  private async _ask(): Promise<void> {
    clearTimeout(this._timer);
    this._timer = undefined;
    if (this._asking) {
      return;
    }
    const asking = (this._asking = new AbortController());
    this._asked = performance.now();
    const { samples } = this._now;
    const since = samples.length ? samples[samples.length - 1].t : 0;
    let next: INow;
    try {
      const usage = await request<GpuPool.IUsageAnswer>(
        this._server,
        'GET',
        `${this._path}/usage?since=${since}`,
        undefined,
        asking
      );
      next = {
        usage,
        samples: recent(samples, usage.samples),
        problem: '',
        gone: null
      };
      const lives =
        usage.held ||
        usage.state === 'queued' ||
        usage.returning ||
        usage.released?.undo_seconds;
      this._pause = lives ? LIVE_MS : RESTING_MS;
    } catch (error) {
      // A server that does not know the kernel, or us, will not learn it by being asked again.
      next = {
        ...this._now,
        problem: error instanceof Error ? error.message : String(error),
        gone: error instanceof Refused && error.status === 404 ? error : null
      };
      this._pause = Math.min(2 * this._pause, SLOWEST_MS);
    }
    if (this._asking === asking) {
      this._asking = null;
      this._now = next;
      this._paint();
      this._arm();
    }
  }

  /** All views that can be seen draw in the next frame; nothing is read from the page between. */
  private _paint(): void {
    if (this._frame !== null || !(this._now.usage || this._now.problem)) {
      return;
    }
    this._frame = requestAnimationFrame(() => {
      this._frame = null;
      let first = true;
      for (const [view, entry] of this._views) {
        if (entry.visible || !entry.drawn) {
          entry.drawn = true;
          view.draw(this._now, first && entry.visible);
          first &&= !entry.visible;
        }
      }
    });
  }

  private readonly _path: string;
  private readonly _views = new Map<IView, IEntry>();
  private readonly _shown = () => this._arm();
  private _now: INow = { usage: null, samples: [], problem: '', gone: null };
  private _pause = LIVE_MS;
  private _asked = -Infinity;
  private _timer: number | undefined;
  private _frame: number | null = null;
  private _asking: AbortController | null = null;
}

function recent(
  before: readonly GpuPool.IUsageSample[],
  more: readonly GpuPool.IUsageSample[]
): GpuPool.IUsageSample[] {
  const all = [...before, ...more];
  const newest = all.length ? all[all.length - 1].t : 0;
  return all.filter(sample => sample.t > newest - HISTORY_SECONDS);
}
