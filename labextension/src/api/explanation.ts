import type { ISentence } from './sentence';

/** Where several devices may lie. */
export type Nodes = 'auto' | 'one' | 'any';

/** A request that can be made with `IGpuPool.attach`. */
export interface IAdvisedAsk {
  share: string;
  count?: number;
  nodes?: Nodes;
  strict?: boolean;
  project?: string;
  kind?: string;
  priority?: number;
  filters?: string[];
  node_pools?: string[];
}

export interface IHelp {
  action: string;
  said: ISentence;
  /** What would be granted now; null: it is not a matter of asking otherwise. */
  ask: IAdvisedAsk | null;
}

/** Why a request waits, and what would help. */
export interface IExplanation {
  reason: string;
  said: ISentence;
  facts: { readonly [name: string]: string };
  helps: readonly IHelp[];
  project: string;
}
