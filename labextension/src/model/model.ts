import type { Event, Kernel, ServiceManager } from '@jupyterlab/services';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';
import { hasWords, learn } from '../api/catalogue';
import { GpuPoolApi, GpuPoolError } from '../api/client';
import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { UsageHistory } from './history';
import { readPreferences } from './preferences';
import {
  deadlines,
  EMPTY_STATE,
  transitions,
  withAnswer,
  withKernel,
  withProblem,
  withRequest,
  withSnapshot
} from './reduce';
import { SESSION_EVENT, type IGpuPool } from './tokens';

/** Longest pause between two tries while the server does not answer. */
const BACKOFF_MAX_MS = 15_000;

/**
 * Holds what the server last said. The poll is the truth; Jupyter events and
 * changes of the list of kernels only make it ask earlier.
 */
export class GpuPoolModel implements IGpuPool {
  constructor(options: GpuPoolModel.IOptions) {
    const { serviceManager } = options;
    this._api = options.api ?? new GpuPoolApi(serviceManager.serverSettings);
    this._services = serviceManager;
    const rest = options.standby ?? 'when-hidden';
    const standby = typeof rest === 'function' ? rest : () => rest;
    this._poll = new Poll({
      name: 'jupyter-gpupool:state',
      auto: false,
      factory: () => this._fetch(),
      frequency: {
        interval: this._preferences.pollSeconds * 1000,
        backoff: true,
        max: BACKOFF_MAX_MS
      },
      // Whoever waits for what comes of a request waits behind other tabs, too.
      standby: () => (this._followed.size > 0 ? 'never' : standby())
    });
    // Stopped whenever nobody counts down, so an idle page does no work.
    this._clock = new Poll({
      name: 'jupyter-gpupool:countdown',
      auto: false,
      factory: async () => this._tick(),
      frequency: { interval: 1000, backoff: false },
      standby: options.standby ?? 'when-hidden'
    });
    serviceManager.events.stream.connect(this._onEvent, this);
    serviceManager.kernels.runningChanged.connect(this._onKernels, this);
    void this._poll.start();
  }

  get state(): IGpuPool.IState {
    return this._state;
  }

  get defaults(): GpuPool.IDefaults | null {
    return this._defaults;
  }

  get preferences(): IGpuPool.IPreferences {
    return this._preferences;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get transitioned(): ISignal<this, IGpuPool.ITransition> {
    return this._transitioned;
  }

  get ticked(): ISignal<this, void> {
    return this._ticked;
  }

  get preferencesChanged(): ISignal<this, void> {
    return this._preferencesChanged;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._services.events.stream.disconnect(this._onEvent, this);
    this._services.kernels.runningChanged.disconnect(this._onKernels, this);
    this._poll.dispose();
    this._clock.dispose();
    Signal.clearData(this);
  }

  /** Follows the settings of a person from now on. */
  applySettings(settings: ISettingRegistry.ISettings): void {
    this._settings = settings.composite;
    this._preferences = readPreferences(this._settings, this._defaults);
    const interval = this._preferences.pollSeconds * 1000;
    this._poll.frequency = {
      ...this._poll.frequency,
      interval,
      // A poll refuses an interval above its longest pause.
      max: Math.max(interval, BACKOFF_MAX_MS)
    };
    this._preferencesChanged.emit();
  }

  kernel(kernelId: string | null | undefined): GpuPool.IKernel | undefined {
    return this._state.kernels.find(k => k.kernel_id === kernelId);
  }

  samples(kernelId: string): readonly GpuPool.IUsageSample[] {
    return this._history.get(kernelId);
  }

  watchUsage(): IDisposable {
    this._watchers += 1;
    if (this._watchers === 1) {
      void this._poll.refresh();
    }
    return new DisposableDelegate(() => {
      this._watchers -= 1;
    });
  }

  follow(kernelId: string): IDisposable {
    const one = { kernelId };
    this._followed.add(one);
    void this._poll.refresh();
    return new DisposableDelegate(() => {
      this._followed.delete(one);
    });
  }

  isFollowed(kernelId: string): boolean {
    return [...this._followed].some(one => one.kernelId === kernelId);
  }

  countdown(kernelId: string): number | null {
    const deadline = this._deadlines.get(kernelId);
    return deadline === undefined
      ? null
      : Math.max(0, (deadline - performance.now()) / 1000);
  }

  async refresh(): Promise<void> {
    await this._poll.refresh();
    await this._poll.tick.catch(() => undefined);
  }

  async refreshDefaults(): Promise<void> {
    let defaults: GpuPool.IDefaults;
    try {
      defaults = await this._api.defaults();
    } catch {
      // The poll says what does not answer; what was known stays.
      return;
    }
    if (this.isDisposed) {
      return;
    }
    this._defaults = defaults;
    this._preferences = readPreferences(this._settings, defaults);
    this._preferencesChanged.emit();
    this._changed.emit();
  }

  attach(kernelId: string, options: GpuPool.IAttachOptions): Promise<void> {
    return this._act(kernelId, () => this._api.attach(kernelId, options));
  }

  detach(kernelId: string, force = false): Promise<void> {
    return this._act(
      kernelId,
      () => this._api.detach(kernelId, force),
      // Code that runs keeps the share for now; the server says so.
      kernel => (holds(kernel) ? kernel.message : null)
    );
  }

  reset(kernelId: string): Promise<void> {
    return this._act(kernelId, () => this._api.reset(kernelId));
  }

  keep(kernelId: string, minutes?: number): Promise<void> {
    return this._act(kernelId, () => this._api.keep(kernelId, minutes));
  }

  undo(kernelId: string): Promise<void> {
    return this._act(kernelId, () => this._api.undo(kernelId));
  }

  setIdle(kernelId: string, minutes: number | null): Promise<void> {
    return this._act(kernelId, () => this._api.setIdle(kernelId, minutes));
  }

  resize(kernelId: string, share: string): Promise<void> {
    return this._act(kernelId, () => this._api.resize(kernelId, share));
  }

  cancelQueue(kernelId: string): Promise<void> {
    return this._act(kernelId, () => this._api.cancelQueue(kernelId));
  }

  take(kernelId: string, options: GpuPool.IAttachOptions): Promise<void> {
    return this._act(kernelId, () => this._api.take(kernelId, options));
  }

  private async _act(
    kernelId: string,
    request: () => Promise<GpuPool.IKernel | null>,
    left: (kernel: GpuPool.IKernel) => string | null = () => null
  ): Promise<void> {
    this._set(withRequest(this._state, kernelId));
    try {
      const kernel = await request();
      this._requests += 1;
      const message = kernel ? left(kernel) : null;
      let next = withAnswer(this._state, kernelId, message);
      if (kernel) {
        next = withKernel(next, kernel, performance.now());
      }
      this._set(next);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this._set(withAnswer(this._state, kernelId, message));
      throw error;
    } finally {
      void this._poll.refresh();
    }
  }

  private async _fetch(): Promise<void> {
    const requests = this._requests;
    const news = this._news;
    const order = ++this._asked;
    let receivedAt = 0;
    try {
      const [pool, kernels] = await Promise.all([
        this._api.pool(),
        this._api
          .kernels(this._watchers > 0 ? this._history.since : undefined)
          .then(list => {
            // Countdowns are of this moment; the pool may take seconds more.
            receivedAt = performance.now();
            return list;
          }),
        this._learnWords()
      ]);
      if (this.isDisposed) {
        return;
      }
      const past = requests !== this._requests;
      // For what came meanwhile no refresh is made beside this one, which may not know it.
      if (past || (news !== this._news && order === this._asked)) {
        void this._poll.schedule({
          phase: 'refreshed',
          interval: Poll.IMMEDIATE
        });
      }
      // Asked before an action of ours was answered: already past.
      if (past) {
        return;
      }
      // A refresh may overtake the request before it.
      if (order < this._applied) {
        return;
      }
      this._applied = order;
      this._history.record(kernels);
      if (!this._defaultsAsked) {
        this._defaultsAsked = true;
        void this.refreshDefaults();
      }
      this._set(
        withSnapshot(this._state, pool, kernels, receivedAt, Date.now())
      );
    } catch (error) {
      // What was asked later may have been answered meanwhile.
      if (!this.isDisposed && order > this._applied) {
        this._set(withProblem(this._state, problemOf(error), Date.now()));
      }
      // Rejecting is how the poll learns to back off.
      throw error;
    }
  }

  /** Before the first sentence is shown; without words its id stands for it, and the next poll asks again. */
  private async _learnWords(): Promise<void> {
    if (hasWords()) {
      return;
    }
    try {
      learn(await this._api.catalogue());
    } catch {
      // The poll says so when the server does not answer, and asks again.
    }
  }

  private _set(state: IGpuPool.IState): void {
    const changes = transitions(this._state.kernels, state.kernels);
    this._state = state;
    this._deadlines = deadlines(this._deadlines, state);
    this._changed.emit();
    for (const change of changes) {
      this._transitioned.emit(change);
    }
    const counting = state.kernels.some(k => k.state === 'warned');
    if (counting !== this._counting) {
      this._counting = counting;
      void (counting ? this._clock.start() : this._clock.stop());
    }
  }

  private _tick(): void {
    this._ticked.emit();
  }

  private _onEvent(_: unknown, event: Event.Emission): void {
    if (event.schema_id === SESSION_EVENT) {
      this._news += 1;
      void this._poll.refresh();
    }
  }

  private _onKernels(_: unknown, running: Kernel.IModel[]): void {
    // The signal also fires for each change of activity; only the set of
    // kernels concerns the list.
    const ids = running
      .map(kernel => kernel.id)
      .sort()
      .join();
    if (ids !== this._running) {
      this._running = ids;
      this._news += 1;
      void this._poll.refresh();
    }
  }

  private readonly _api: GpuPoolModel.Api;
  private readonly _services: GpuPoolModel.Services;
  private readonly _poll: Poll;
  private readonly _clock: Poll;
  private readonly _history = new UsageHistory();
  private readonly _changed = new Signal<this, void>(this);
  private readonly _transitioned = new Signal<this, IGpuPool.ITransition>(this);
  private readonly _ticked = new Signal<this, void>(this);
  private readonly _preferencesChanged = new Signal<this, void>(this);
  private _settings: ReadonlyPartialJSONObject = {};
  private _defaults: GpuPool.IDefaults | null = null;
  private _defaultsAsked = false;
  private _preferences = readPreferences({});
  private _state = EMPTY_STATE;
  private _deadlines: ReadonlyMap<string, number> = new Map();
  private _counting = false;
  /** Views that show samples. */
  private _watchers = 0;
  /** One entry for each that waits for what comes of a kernel's request. */
  private readonly _followed = new Set<{ kernelId: string }>();
  /** Actions answered so far. */
  private _requests = 0;
  /** How often something was heard that an answer on its way may not know. */
  private _news = 0;
  /** Number of the last question asked, and of the last answer shown. */
  private _asked = 0;
  private _applied = 0;
  private _running = '';
}

export namespace GpuPoolModel {
  /** The routes the model needs. */
  export type Api = Pick<
    GpuPoolApi,
    | 'pool'
    | 'kernels'
    | 'catalogue'
    | 'defaults'
    | 'attach'
    | 'detach'
    | 'reset'
    | 'keep'
    | 'undo'
    | 'setIdle'
    | 'resize'
    | 'cancelQueue'
    | 'take'
  >;

  /** The services the model listens to. */
  export type Services = Pick<
    ServiceManager.IManager,
    'serverSettings' | 'events' | 'kernels'
  >;

  export interface IOptions {
    serviceManager: Services;
    api?: Api;
    standby?: Poll.Standby | (() => boolean | Poll.Standby);
  }
}

function problemOf(error: unknown): IGpuPool.IProblem {
  const message = error instanceof Error ? error.message : String(error);
  if (!(error instanceof GpuPoolError)) {
    return { kind: 'server', message };
  }
  const kind = error.reason === 'missing' ? 'missing' : 'server';
  return { kind, message, status: error.status };
}
