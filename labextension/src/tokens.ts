import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import type {
  IDefaults as Defaults,
  IProjectChoice as ProjectChoice
} from './defaults';
import type {
  IAdvisedAsk as AdvisedAsk,
  IExplanation as Explanation,
  IHelp as Help
} from './explanation';
import type {
  IKernelUsage as KernelUsage,
  IOutOfMemory as OutOfMemory
} from './kernelUsage';
import type { IPreferences as Preferences } from './preferences';
import type { IProblem as Problem } from './problem';
import type { IUsageSample as UsageSample } from './usageSample';

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
  readonly state: GpuPool.IState;

  /** Emitted after `state` was replaced. */
  readonly changed: ISignal<IGpuPool, void>;

  /** Emitted once for each kernel whose session went to another state. */
  readonly transitioned: ISignal<IGpuPool, GpuPool.ITransition>;

  /** Emitted each second while at least one kernel counts down. */
  readonly ticked: ISignal<IGpuPool, void>;

  /** What Attach asks for and who may ask; null until the server has told. */
  readonly defaults: GpuPool.IDefaults | null;

  /** What a person has set, and the server's default where they have not. */
  readonly preferences: GpuPool.IPreferences;

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

/** The types of the REST contract, spelled as they travel. */
export namespace GpuPool {
  /** Words for the state of a session, the same in every interface. */
  export type SessionState =
    'none' | 'queued' | 'attached' | 'warned' | 'parked' | 'closed' | 'lost';

  /** Why a session lost its lease. */
  export type Reason =
    | 'exit'
    | 'release'
    | 'idle'
    | 'deadline'
    | 'budget'
    | 'reclaim'
    | 'preempt'
    | 'consolidate'
    | 'lost'
    | 'admin'
    | 'reset'
    | 'stopped';

  /** All of them; any other reason is that of a refused request. */
  export const REASONS: ReadonlySet<string> = new Set<Reason>([
    'exit',
    'release',
    'idle',
    'deadline',
    'budget',
    'reclaim',
    'preempt',
    'consolidate',
    'lost',
    'admin',
    'reset',
    'stopped'
  ]);

  /** A part of one device as one holder has it. */
  export interface IDeviceShare {
    lease_id: string;
    session_id: string | null;
    user: string;
    mine: boolean;
    kernel_id: string | null;
    label: string;
    milli: number;
    mib: number;
    state: string;
    in_use: boolean;
  }

  export interface IDevice {
    id: string;
    node: string;
    name: string;
    software: boolean;
    healthy: boolean;
    health_reason?: string | null;
    /** Its node takes no new leases; `healthy` is false then too. */
    drained?: boolean;
    total_mib: number;
    usable_mib: number;
    free_milli: number;
    free_mib: number;
    used_bytes: number;
    shares: IDeviceShare[];
  }

  export type IAdvisedAsk = AdvisedAsk;

  export type IHelp = Help;

  export type IExplanation = Explanation;

  /** The pool will take a share back. */
  export interface INotice {
    reason: string;
    seconds_left: number;
    explanation: string;
    /** The kernel asks again by itself; its calls wait meanwhile. */
    returns: boolean;
  }

  /** Where several devices may lie. */
  export type Nodes = 'auto' | 'one' | 'any';

  export interface IQueueEntry {
    place: number;
    user: string;
    mine: boolean;
    kernel_id: string | null;
    label: string;
    milli: number | null;
    mib: number | null;
    count?: number;
    reason: string;
    eta_seconds: number | null;
    project?: string;
    explanation?: IExplanation | null;
    /** Devices that are kept free of later requests for this one. */
    wants?: readonly string[];
  }

  /** Answer of `GET api/pool`. */
  export interface IPool {
    ok: boolean;
    error?: string;
    /** Which setting keeps the server from asking the pool. */
    wrong_setting?: string | null;
    user?: string;
    devices: IDevice[];
    queue: IQueueEntry[];
    totals?: { milli: number; free_milli: number };
  }

  export interface IShare {
    milli: number;
    mib: number;
    count: number;
  }

  export interface IQueuePlace {
    place: number;
    reason: string;
    eta_seconds: number | null;
    explanation?: IExplanation | null;
    /** Something else may be taken in its place; a cell asks for itself. */
    takes?: boolean;
  }

  /** Where the device memory of a session lies. */
  export interface IMemory {
    place: 'device' | 'host' | 'image' | 'none';
    /** What is being done with it; empty: nothing. */
    activity: '' | 'parking' | 'resuming' | 'moving';
    /** A sentence for each thing that cannot be done with it. */
    obstacles: readonly string[];
    enforcement: 'soft' | 'hard' | 'mps' | 'none';
    strict: boolean;
  }

  /** What `%gpu auto on` asks for; share null: what the kernel had last. */
  export interface IAuto {
    share: string | null;
    count: number;
  }

  /** The idle ladder of a held lease, in seconds where nothing else is said. */
  export interface IIdle {
    /** Since anything used the GPU: the smaller of the two clocks. */
    seconds: number;
    /** Since the last cell ended; 0 while one runs. */
    kernel_seconds: number;
    /** Since the last work on the GPU; null: not known, counts as in use. */
    gpu_seconds: number | null;
    /** Null: never released. */
    warn_at: number | null;
    release_at: number | null;
    countdown: number | null;
    /** What was chosen for this kernel: 0 never, null the server's default. */
    choice_minutes: number | null;
    default_minutes: number;
  }

  /** The last release that nobody at this kernel asked for, or a Detach. */
  export interface IReleased {
    reason: string;
    /** One sentence: why, what was freed, what was kept and where. */
    message: string;
    /** Unix time, seconds. */
    at: number;
    freed: { milli: number; mib: number; count: number; device: string };
    memory: { bytes: number; place: IMemory['place'] };
    /** For how long Undo is still offered; 0: it is not. */
    undo_seconds: number;
    /** The pool does not lend the share to others yet. */
    draining?: boolean;
  }

  export type IUsage = KernelUsage;

  export type IOutOfMemory = OutOfMemory;

  export type IUsageSample = UsageSample;

  /** One element of `GET api/kernels`. */
  export interface IKernel {
    kernel_id: string;
    name: string;
    path: string | null;
    label: string;
    busy: boolean;
    session_id: string | null;
    state: SessionState;
    held: boolean;
    /** The Attach button, a `%%gpu` cell, `%gpu attach` or `%gpu auto`. */
    by: 'sidebar' | 'magic' | 'attach' | 'auto' | null;
    /** Set while CUDA calls of the kernel attach a GPU by themselves. */
    auto?: IAuto | null;
    /** Null while there is no session, or the pool has not told. */
    memory?: IMemory | null;
    share: IShare | null;
    device: string | null;
    /** All of them, on one node or several. */
    devices?: string[];
    queue: IQueuePlace | null;
    idle: IIdle | null;
    /** Kept until the next attach. */
    released?: IReleased | null;
    /** Set from the moment that the pool says it will take the share back. */
    notice?: INotice | null;
    /** Its share was taken back for others, and it waits for it to come again. */
    returning?: boolean;
    /** Whose quota the share counts against; empty: the user's own. */
    project?: string | null;
    /** A `Reason`, or why the last request was refused. */
    reason: string | null;
    message: string | null;
    usage: IUsage | null;
    /** Only in answers to a poll that asked for them. */
    samples?: readonly IUsageSample[];
  }

  export type IProblem = Problem;

  export interface IState {
    /** False until the first answer or failure. */
    ready: boolean;
    /** While it does not answer: what it told last, with `ok` false. */
    pool: IPool | null;
    /** When the pool answered last, Unix ms; null: not since the page opened. */
    poolAt: number | null;
    kernels: readonly IKernel[];
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
    kernel: IKernel;
    /** Its state before; null when this page sees the kernel first. */
    from: SessionState | null;
    /** Its share before the change, which a release takes away. */
    share: IShare | null;
  }

  export interface IAttachOptions {
    /** As a person writes it: `0.2`, `20%`, `2560MiB`, `2.5GiB`. */
    share: string;
    /** How many devices, each with that share. */
    count?: number;
    /** Seconds to stay in the queue. */
    wait?: number;
    nodes?: Nodes;
    /** Compute is capped at the share, also while nobody else wants it. */
    strict?: boolean;
    project?: string;
    kind?: string;
    priority?: number;
    filters?: string[];
    node_pools?: string[];
  }

  export type IPreferences = Preferences;

  export type IDefaults = Defaults;

  export type IProjectChoice = ProjectChoice;
}
