import type { IGpuRequest } from './request';
import type { ISentence } from './sentence';

/** Where several devices may lie. */
export type Nodes = NonNullable<IGpuRequest['nodes']>;

/** A request that can be made with `IGpuPool.attach`. */
export type IAttachOptions = IGpuRequest & {
  /** As a person writes it: `0.2`, `20%`, `2560MiB`, `2.5GiB`. */
  share: string;
};

export interface IHelp {
  action: string;
  said: ISentence;
  /** What would be granted now; null: it is not a matter of asking otherwise. */
  ask: IAttachOptions | null;
}

/** Why a request waits, and what would help. */
export interface IExplanation {
  reason: string;
  said: ISentence;
  facts: { readonly [name: string]: string };
  helps: readonly IHelp[];
  project: string;
}
