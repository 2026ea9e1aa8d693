import type { IDisposable } from '@lumino/disposable';
import { Poll, type IPoll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';
import type { DashboardApi } from './api';
import { RANGES, samePlace, type IPlace } from './place';
import type { GpuPool } from '../api/types';

/** What the dashboard last heard of its place. */
export interface IDashboardState {
  place: IPlace;
  /** Null until the first answer for this place. */
  series: GpuPool.IHistory | null;
  administration: GpuPool.IAdministration | null;
  /** Why the last question was not answered. */
  problem: string | null;
}

export namespace DashboardModel {
  export type Api = Pick<
    DashboardApi,
    'history' | 'administration' | 'drain' | 'setQuota'
  >;
}

/**
 * Follows one place of the history. Asks only while it is shown: not when the
 * browser tab is hidden, and not when another tab of JupyterLab is in front.
 */
export class DashboardModel implements IDisposable {
  constructor(
    private readonly _api: DashboardModel.Api,
    place: IPlace,
    options: { standby?: Poll.Standby } = {}
  ) {
    this._state = {
      place,
      series: null,
      administration: null,
      problem: null
    };
    this._poll = new Poll({
      name: 'jupyter-gpupool:dashboard',
      auto: false,
      factory: () => this._fetch(),
      frequency: frequency(place, null),
      standby: options.standby ?? 'when-hidden'
    });
  }

  get state(): IDashboardState {
    return this._state;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._poll.dispose();
      Signal.clearData(this);
    }
  }

  /** Goes somewhere else; what was shown of the place before is gone at once. */
  go(place: IPlace): void {
    if (samePlace(place, this._state.place)) {
      return;
    }
    this._set({ place, series: null, administration: null, problem: null });
    if (this._shown) {
      // A refresh would be left out while a question about the place before is on its way.
      void this._poll.schedule({
        phase: 'refreshed',
        interval: Poll.IMMEDIATE
      });
    }
  }

  /** Asks while it is shown, and rests else. */
  show(shown: boolean): void {
    if (this._shown === shown || this.isDisposed) {
      return;
    }
    this._shown = shown;
    void (shown ? this._poll.refresh() : this._poll.stop());
  }

  async refresh(): Promise<void> {
    await this._ask();
    // A question that was on its way already is answered with what was before.
    // Asked once more and no oftener: a page that rests may have no answer.
    if (this._heard !== this._done && !this.isDisposed) {
      await this._ask();
    }
  }

  /**
   * Lets a node take no new leases, or take them again.
   * @throws GpuPoolError when the pool refuses.
   */
  async drain(
    node: string,
    drained: boolean,
    reason = '',
    evict = false
  ): Promise<void> {
    await this._api.drain(node, drained, reason, evict);
    this._done += 1;
    await this.refresh();
  }

  /**
   * Changes what is named of a project.
   * @throws GpuPoolError when the pool refuses.
   */
  async setQuota(path: string, change: GpuPool.IQuotaChange): Promise<void> {
    await this._api.setQuota(path, change);
    this._done += 1;
    await this.refresh();
  }

  private async _ask(): Promise<void> {
    await this._poll.refresh();
    await this._poll.tick.catch(() => undefined);
  }

  private async _fetch(): Promise<void> {
    const place = this._state.place;
    const done = this._done;
    const counts = (): boolean =>
      done === this._done && samePlace(place, this._state.place);
    try {
      const quotas = place.view === 'quotas';
      const [series, administration] = await Promise.all([
        quotas ? null : this._api.history(place),
        quotas || place.view === 'node' ? this._api.administration() : null
      ]);
      if (counts()) {
        this._set({ series, administration, problem: null });
      }
    } catch (error) {
      if (counts()) {
        const text = error instanceof Error ? error.message : String(error);
        this._set({ problem: text });
      }
      throw error;
    } finally {
      this._heard = done;
    }
  }

  private _set(change: Partial<IDashboardState>): void {
    this._state = { ...this._state, ...change };
    const { place, problem } = this._state;
    this._poll.frequency = frequency(place, problem);
    this._changed.emit();
  }

  private _state: IDashboardState;
  private _shown = false;
  /** How much was changed from here, and how much of it the last answer knew. */
  private _done = 0;
  private _heard = 0;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
}

/** How often it asks: soon after an outage, however long the range is. */
function frequency(place: IPlace, problem: string | null): IPoll.Frequency {
  const interval = RANGES[place.range].pollSeconds * 1000;
  return problem === null
    ? { interval, backoff: true, max: 300_000 }
    : { interval: Math.min(10_000, interval), backoff: true, max: 30_000 };
}
