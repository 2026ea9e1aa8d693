import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ICatalogue } from './catalogue';
import { inTime, secondsOf } from './timeLimit';
import type { GpuPool } from './types';

/** A request that the server or the pool refused, with its reason id. */
export class GpuPoolError extends Error {
  constructor(
    message: string,
    /** Such as `bad-share`, `full`, `pool-down`; `missing` is ours. */
    readonly reason: string,
    /** HTTP status; 0 when there was no answer. */
    readonly status: number
  ) {
    super(message);
    this.name = 'GpuPoolError';
  }
}

/** The REST interface of the server extension, one method per route. */
export class GpuPoolApi {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  pool(): Promise<GpuPool.IPool> {
    return this._request<GpuPool.IPool>('GET', ['pool']);
  }

  /**
   * All kernels; with `samplesSince`, Unix seconds of the server, also what
   * each has used since then. Below 0 it is counted from now.
   */
  async kernels(samplesSince?: number): Promise<GpuPool.IKernel[]> {
    const answer = await this._request<{ kernels: GpuPool.IKernel[] }>(
      'GET',
      ['kernels'],
      undefined,
      samplesSince === undefined
        ? ''
        : URLExt.objectToQueryString({ samples_since: samplesSince })
    );
    return answer.kernels;
  }

  defaults(): Promise<GpuPool.IDefaults> {
    return this._request<GpuPool.IDefaults>('GET', ['defaults']);
  }

  /** The words of the pool's sentences; a browser that has them gets no other copy. */
  catalogue(): Promise<ICatalogue> {
    return this._request<ICatalogue>('GET', ['catalogue'], undefined, '', {
      cache: 'no-cache'
    });
  }

  attach(
    kernelId: string,
    options: GpuPool.IAttachOptions
  ): Promise<GpuPool.IKernel | null> {
    // JSON leaves out what is undefined; the server then takes its default.
    return this._kernel('POST', kernelId, 'attach', { ...options });
  }

  detach(kernelId: string, force: boolean): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'detach', { force });
  }

  reset(kernelId: string): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'reset');
  }

  keep(kernelId: string, minutes?: number): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'keep', { minutes });
  }

  undo(kernelId: string): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'undo');
  }

  setIdle(
    kernelId: string,
    minutes: number | null
  ): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'idle', { minutes });
  }

  resize(kernelId: string, share: string): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'resize', { share });
  }

  /** Something else in the place of what the kernel, or its cell, waits for. */
  take(
    kernelId: string,
    options: GpuPool.IAttachOptions
  ): Promise<GpuPool.IKernel | null> {
    return this._kernel('POST', kernelId, 'take', { ...options });
  }

  cancelQueue(kernelId: string): Promise<GpuPool.IKernel | null> {
    return this._kernel('DELETE', kernelId, 'queue');
  }

  /** Verbs answer with the kernel as it is then, or with an empty body. */
  private async _kernel(
    method: string,
    kernelId: string,
    verb: string,
    body?: object
  ): Promise<GpuPool.IKernel | null> {
    const answer = await this._request<Partial<GpuPool.IKernel> | null>(
      method,
      ['kernels', kernelId, verb],
      body
    );
    return answer?.kernel_id ? (answer as GpuPool.IKernel) : null;
  }

  protected async _request<T>(
    method: string,
    path: string[],
    body?: object,
    query = '',
    how: RequestInit = {},
    seconds = secondsOf(method)
  ): Promise<T> {
    const url =
      URLExt.join(
        this._settings.baseUrl,
        'gpupool',
        'api',
        ...path.map(encodeURIComponent)
      ) + query;
    const init: RequestInit = { ...how, method };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
    }
    let response: Response;
    let text: string;
    try {
      [response, text] = await inTime(seconds, async signal => {
        const settings = this._settings;
        const answer = await ServerConnection.makeRequest(
          url,
          { ...init, signal },
          settings
        );
        return [answer, await answer.text()] as const;
      });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new GpuPoolError(why, 'unreachable', 0);
    }
    const data = parse(text);
    if (!response.ok) {
      throw refusal(response, data);
    }
    // Such as the login page of a proxy. Only a verb has nothing to say.
    if (data === undefined || (data === null && method === 'GET')) {
      throw new GpuPoolError(
        `What came from gpupool/api/${path.join('/')} is no answer of the Jupyter server.`,
        'unknown',
        response.status
      );
    }
    return data as T;
  }
}

/** Undefined: it is no JSON. */
function parse(text: string): unknown {
  if (text === '') {
    return null;
  }
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refusal(response: Response, data: unknown): GpuPoolError {
  const body = (data ?? {}) as { message?: unknown; reason?: unknown };
  const reason = typeof body.reason === 'string' ? body.reason : null;
  // Our own 404s name a reason that is an id; the server's default page for
  // an unknown path does not.
  const missing =
    response.status === 404 && (reason === null || reason === 'Not Found');
  const message =
    typeof body.message === 'string' && body.message !== ''
      ? body.message
      : `${response.status} ${response.statusText}`;
  return new GpuPoolError(
    message,
    missing ? 'missing' : (reason ?? 'unknown'),
    response.status
  );
}
