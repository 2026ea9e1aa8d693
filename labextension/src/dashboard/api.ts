import { URLExt } from '@jupyterlab/coreutils';
import { GpuPoolApi } from '../api/client';
import { RANGES, type IPlace } from './place';
import type { GpuPool } from '../api/types';

/** At most so many points: about one for each four pixels of a wide chart. */
const POINTS = 240;

/** The routes that only the dashboard asks. */
export class DashboardApi extends GpuPoolApi {
  /** The series and members of a place, from its range before now on. */
  history(place: IPlace): Promise<GpuPool.IHistory> {
    const query = URLExt.objectToQueryString({
      view: place.view,
      name: place.name,
      by: place.by,
      // Counted from the server's now: a browser's clock may be wrong.
      from: -RANGES[place.range].seconds,
      points: POINTS
    });
    return this._request('GET', ['history'], undefined, query);
  }

  administration(): Promise<GpuPool.IAdministration> {
    return this._request('GET', ['administration']);
  }

  drain(
    node: string,
    drained: boolean,
    reason: string,
    evict: boolean
  ): Promise<GpuPool.INode> {
    const body = { node, drained, reason, evict };
    return this._request('POST', ['administration', 'drain'], body);
  }

  setQuota(
    path: string,
    change: GpuPool.IQuotaChange
  ): Promise<GpuPool.IProject> {
    const body = { path, ...change };
    return this._request('POST', ['administration', 'project'], body);
  }
}
