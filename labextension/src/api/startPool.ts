import { GpuPoolApi } from './client';
import type { GpuPool } from './types';

/** The route that starts a pool beside the Jupyter server. */
export class StartPoolApi extends GpuPoolApi {
  /** Resolves when the pool lends its GPUs. */
  start(): Promise<GpuPool.IPool> {
    return this._request('POST', ['pool', 'start']);
  }
}
