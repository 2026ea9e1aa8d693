import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import type { GpuPool } from '../api/types';
import type { IPreferences as Preferences } from './preferences';

/** Everything this package registers starts with this name. */
export const NAMESPACE = 'jupyter-gpupool';

/** Identifier of the sidebar widget, also its key in the saved layout. */
export const SIDEBAR_ID = 'gpupool-sidebar';

/** Jupyter event schema that announces a change of a kernel's session. */
export const SESSION_EVENT = 'https://events.jupyter-gpupool.dev/session/v1';

/**
 * What other extensions get when they ask for the pool: the live state, and
 * what one can do to a kernel.
 */
export const IGpuPool = new Token<IGpuPool>(
  `${NAMESPACE}:IGpuPool`,
  'State of the GPU pool and of each kernel that has or wants a share of it.'
);

export interface IGpuPool extends IDisposable {
  /** The last state the server told, replaced as a whole at each change. */
  readonly state: IGpuPool.IState;

  /** Emitted after `state` was replaced. */
  readonly changed: ISignal<IGpuPool, void>;

  /** Emitted once for each kernel whose session went to another state. */
  readonly transitioned: ISignal<IGpuPool, IGpuPool.ITransition>;

  /** Emitted each second while at least one kernel counts down. */
  readonly ticked: ISignal<IGpuPool, void>;

  /** What Attach asks for and who may ask; null until the server has told. */
  readonly defaults: GpuPool.IDefaults | null;

  /** What a person has set, and the server's default where they have not. */
  readonly preferences: IGpuPool.IPreferences;

  /** Emitted after `preferences` changed. */
  readonly preferencesChanged: ISignal<IGpuPool, void>;

  /** The kernel with this id, if the server knows it. */
  kernel(kernelId: string | null | undefined): GpuPool.IKernel | undefined;

  /**
   * What a kernel has used lately, oldest first. Samples are asked for only
   * while somebody looks at them, see `watchUsage`.
   */
  samples(kernelId: string): readonly GpuPool.IUsageSample[];

  /** Asks for samples with each poll until the result is disposed. */
  watchUsage(): IDisposable;

  /**
   * Whoever calls this waits for what comes of a kernel's request, and tells
   * it: until the result is disposed, the state is followed also while the
   * page is hidden, and no notification says the same.
   */
  follow(kernelId: string): IDisposable;

  /** Whether somebody does. */
  isFollowed(kernelId: string): boolean;

  /** Seconds until a warned kernel is released, by this machine's clock. */
  countdown(kernelId: string): number | null;

  /** Asks the server again now; resolves when the answer is in `state`. */
  refresh(): Promise<void>;

  /** Asks for `defaults` anew; `changed` is emitted when they are there. */
  refreshDefaults(): Promise<void>;

  /**
   * Asks for a share. Resolves when the server has accepted the request, the
   * kernel is then `queued` or `attached`.
   * @throws GpuPoolError when the pool refuses.
   */
  attach(kernelId: string, options: GpuPool.IAttachOptions): Promise<void>;

  /**
   * Gives the share back; what the session holds in device memory stays.
   * `force` takes it from a cell that runs, too.
   */
  detach(kernelId: string, force?: boolean): Promise<void>;

  /** Ends the GPU session with what is in its memory; the kernel stays. */
  reset(kernelId: string): Promise<void>;

  /**
   * Puts the release of an idle kernel off by so many minutes; by default ten,
   * or what the administrator allows.
   */
  keep(kernelId: string, minutes?: number): Promise<void>;

  /** Attaches again what was released last, on the same terms. */
  undo(kernelId: string): Promise<void>;

  /**
   * After how many minutes without use a kernel loses its GPU: 0 never, null
   * the server's default.
   */
  setIdle(kernelId: string, minutes: number | null): Promise<void>;

  /** Changes the share of an attached kernel. */
  resize(kernelId: string, share: string): Promise<void>;

  /** Takes a queued kernel out of the queue. */
  cancelQueue(kernelId: string): Promise<void>;

  /** Takes something else in the place of what a queued kernel waits for. */
  take(kernelId: string, options: GpuPool.IAttachOptions): Promise<void>;
}

export namespace IGpuPool {
  /** Why there is nothing to show. */
  export interface IProblem {
    /**
     * `pool`: the server answers, the pool does not. `setting`: the server
     * cannot ask the pool as it is configured. `server`: the Jupyter server
     * does not answer, or not what it was asked. `missing`: it answers without
     * our extension.
     */
    kind: 'pool' | 'setting' | 'server' | 'missing';
    message: string;
    /** HTTP status of what came in place of an answer; 0, absent: nothing came. */
    status?: number;
  }

  export interface IState {
    /** False until the first answer or failure. */
    ready: boolean;
    /** While it does not answer: what it told last, with `ok` false. */
    pool: GpuPool.IPool | null;
    /** When the pool answered last, Unix ms; null: not since the page opened. */
    poolAt: number | null;
    kernels: readonly GpuPool.IKernel[];
    problem: IProblem | null;
    /** Since when there is a problem of this kind, Unix ms. */
    problemSince: number | null;
    /** Kernels with a request of this page under way. */
    pending: ReadonlySet<string>;
    /** What the last request for a kernel was refused with. */
    failures: ReadonlyMap<string, string>;
    /** `performance.now()` at the arrival of `kernels`. */
    receivedAt: number;
  }

  export interface ITransition {
    /** The kernel as it is now. */
    kernel: GpuPool.IKernel;
    /** Its state before; null when this page sees the kernel first. */
    from: GpuPool.State | null;
    /** Its share before the change, which a release takes away. */
    share: GpuPool.IShare | null;
    /** Who held that share, or asked for it. */
    by: GpuPool.IKernel['by'];
    /** What waited before it; null: nothing did. */
    asked: GpuPool.IKernelQueuePlace['asked'] | null;
    /** What waited before it was the request of a cell, which says itself what came of it. */
    ofCell: boolean;
  }

  export type IPreferences = Preferences;
}
