import { GpuPoolApi } from './client';
import type { GpuPool } from './types';

/** The server itself waits for the pool, its node and GPUs for 240 s. */
const START_SECONDS = 250;

/** The route that starts a pool beside the Jupyter server. */
export class StartPoolApi extends GpuPoolApi {
  /** Resolves when the pool lends its GPUs. */
  start(): Promise<GpuPool.IPool> {
    return this._request(
      'POST',
      ['pool', 'start'],
      undefined,
      '',
      {},
      START_SECONDS
    );
  }
}
