import type { GpuPool } from '../api/types';

/** What a kernel's document was attached with last, and where that is kept. */
export interface INotebookTerms {
  /** Null: the kernel has no notebook here, or it was never attached by hand. */
  of(kernelId: string | null): GpuPool.IAttachOptions | null;
  /** Writes it into the notebook; nothing where nothing changes. */
  remember(kernelId: string, options: GpuPool.IAttachOptions): void;
}
