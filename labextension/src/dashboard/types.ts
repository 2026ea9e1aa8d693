import type { ISentence } from '../api/sentence';

/** Columns of `GET api/history`: one value for each point, null where nobody looked. */
export interface IColumns {
  /** Beginning of the point, Unix seconds. */
  t: number[];
  capacity_milli: (number | null)[];
  held_milli: (number | null)[];
  used_milli: (number | null)[];
  /** Held and not used. */
  idle_milli: (number | null)[];
  capacity_mib: (number | null)[];
  held_mib: (number | null)[];
  memory_mib: (number | null)[];
  waiting_milli: (number | null)[];
  /** How many asks waited. */
  waiting: (number | null)[];
  to_device_bps: (number | null)[];
  from_device_bps: (number | null)[];
}

/** Sums over the time of a series. */
export interface ISums {
  /** How long of it was looked at. */
  seconds: number;
  capacity_hours: number;
  held_hours: number;
  used_hours: number;
  idle_hours: number;
  waiting_hours: number;
  memory_gib_hours: number;
  to_device_bytes: number;
  from_device_bytes: number;
}

export interface IMember extends ISums {
  /** `(others)`: those whose names this user does not get. */
  name: string;
  /** Of a client. */
  user: string;
  label: string;
}

/** Answer of `GET api/history`. */
export interface ISeries {
  from: number;
  to: number;
  /** Seconds from a point to the next. */
  step: number;
  points: IColumns;
  total: ISums;
  members: IMember[];
  admin: boolean;
}

export interface INode {
  name: string;
  connected: boolean;
  lost: boolean;
  silent_seconds: number;
  drained: boolean;
  drain_reason: string;
  node_pool: string;
  sharing: string;
  devices: number;
  leases: number;
}

export interface IProject {
  path: string;
  /** Null: what its siblings leave. */
  deserved_milli: number | null;
  /** Null: none. */
  limit_milli: number | null;
  weight: number;
  priority: number;
  allocated_milli: number;
  waiting_milli: number;
  fair_share_milli: number;
  real_deserved_milli: number;
  /** What is nearly used up. */
  alerts: readonly ISentence[];
}

/** Answer of `GET api/administration`. */
export interface IAdministration {
  admin: boolean;
  nodes: INode[];
  projects: IProject[];
  warnings: string[];
  capacity_milli: number;
}

/** What an administrator changes of a project; what is left out stays. */
export interface IQuotaChange {
  deserved?: number | null;
  limit?: number | null;
  weight?: number;
}
