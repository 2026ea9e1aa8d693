/** A project that may be asked for; quantities in milli-GPU. */
export interface IProjectChoice {
  path: string;
  /** What it always gets of the present pool. */
  deserved: number;
  /** Null: no limit. */
  limit: number | null;
  held: number;
  /** What is left of the limit; null: no limit. */
  free: number | null;
}

/** Answer of `GET api/defaults`. */
export interface IDefaults {
  share: string;
  /** What a request without a project counts against; empty: name one. */
  project: string;
  projects: readonly IProjectChoice[];
  /** Why `projects` is not known. */
  error: string | null;
  /** Of the queue; negative: without end. */
  wait_seconds: number;
  /** Without use, before the GPU goes back; 0: it never does. */
  idle_minutes: number;
  idle_minutes_most: number;
  never_allowed: boolean;
  warn_seconds: number;
  user: string;
  admin: boolean;
  version: string;
}
