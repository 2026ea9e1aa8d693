import type {
  IDefaults as Defaults,
  IProjectChoice as ProjectChoice
} from './defaults';
import type {
  IAttachOptions as AttachOptions,
  IExplanation as Explanation,
  IHelp as Help,
  Nodes as AskedNodes
} from './explanation';
import type { ISentence } from './sentence';
import type {
  IKernelUsage as KernelUsage,
  IOutOfMemory as OutOfMemory,
  IUsageSample as UsageSample
} from './usage';

/** The types of the REST contract, spelled as they travel. */
export namespace GpuPool {
  /** Words for the state of a session, the same in every interface. */
  export type SessionState =
    'none' | 'queued' | 'attached' | 'warned' | 'parked' | 'closed' | 'lost';

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

  export type IHelp = Help;

  export type IExplanation = Explanation;

  /** The pool will take a share back. */
  export interface INotice {
    reason: string;
    seconds_left: number;
    /** For whom, and what becomes of the session. */
    said: ISentence;
    /** The kernel asks again by itself; its calls wait meanwhile. */
    returns: boolean;
  }

  export type Nodes = AskedNodes;

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
    /** What cannot be done with it, and why. */
    obstacles: readonly ISentence[];
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

  /** What a kernel's session is and does, without whose it is. */
  export type ISession = Pick<
    IKernel,
    | 'session_id'
    | 'state'
    | 'held'
    | 'share'
    | 'device'
    | 'queue'
    | 'idle'
    | 'released'
    | 'notice'
    | 'returning'
    | 'memory'
    | 'message'
    | 'usage'
  >;

  /** Answer of `GET api/kernels/{id}/usage`. */
  export interface IUsageAnswer extends ISession {
    /** Whether its devices are computed on a processor. */
    software: boolean | null;
    samples: readonly IUsageSample[];
  }

  export type IAttachOptions = AttachOptions;

  export type IDefaults = Defaults;

  export type IProjectChoice = ProjectChoice;
}
