import {
  ServerConnection,
  type Event,
  type Kernel
} from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { ICatalogue } from '../api/catalogue';
import type { GpuPool } from '../api/types';
import type { GpuPoolModel } from '../model/model';
import { CATALOGUE } from './catalogue';
import { aKernel, anAttachedKernel, aPool } from './samples';

/** The services of JupyterLab that the model listens to, without a server. */
export class Services {
  readonly event = new Signal<this, Event.Emission>(this);
  readonly running = new Signal<this, Kernel.IModel[]>(this);

  readonly services = {
    serverSettings: ServerConnection.makeSettings(),
    events: { stream: this.event },
    kernels: { runningChanged: this.running }
  } as unknown as GpuPoolModel.Services;
}

/** The routes, answered from memory; each test says what the server knows. */
export class Server implements GpuPoolModel.Api {
  answer: GpuPool.IPool = aPool();
  list: GpuPool.IKernel[] = [aKernel()];
  calls: string[] = [];
  /** From when each poll asked for samples. */
  since: (number | undefined)[] = [];
  /** What was asked for, in order. */
  options: GpuPool.IAttachOptions[] = [];
  /** The answer to the next requests. */
  attached: GpuPool.IKernel = anAttachedKernel();
  /** The answer to a detach that is not forced. */
  detached: GpuPool.IKernel = aKernel({ state: 'parked', reason: 'release' });
  /** Thrown by the next verb. */
  refusal: Error | null = null;
  /** Thrown by each question. */
  down: Error | null = null;

  async pool(): Promise<GpuPool.IPool> {
    this.calls.push('pool');
    if (this.down) {
      throw this.down;
    }
    return this.answer;
  }

  async kernels(samplesSince?: number): Promise<GpuPool.IKernel[]> {
    this.since.push(samplesSince);
    if (this.down) {
      throw this.down;
    }
    return this.list;
  }

  /** Null: the server does not know the route. */
  told: GpuPool.IDefaults | null = null;

  async defaults(): Promise<GpuPool.IDefaults> {
    if (this.told === null) {
      throw new Error('404');
    }
    return this.told;
  }

  /** Null: the server does not know the route. */
  words: ICatalogue | null = CATALOGUE;

  async catalogue(): Promise<ICatalogue> {
    this.calls.push('catalogue');
    if (this.words === null) {
      throw new Error('404');
    }
    return this.words;
  }

  attach(kernelId: string, options: GpuPool.IAttachOptions) {
    this.options.push(options);
    return this._verb(`attach ${kernelId} ${options.share}`, this.attached);
  }

  detach(kernelId: string, force: boolean) {
    return this._verb(
      `detach ${kernelId}${force ? ' by force' : ''}`,
      force ? aKernel({ state: 'parked', reason: 'release' }) : this.detached
    );
  }

  reset(kernelId: string) {
    return this._verb(`reset ${kernelId}`, aKernel({ reason: 'reset' }));
  }

  keep(kernelId: string, minutes?: number) {
    return this._verb(`keep ${kernelId} ${minutes}`, anAttachedKernel());
  }

  undo(kernelId: string) {
    return this._verb(`undo ${kernelId}`, anAttachedKernel());
  }

  setIdle(kernelId: string, minutes: number | null) {
    return this._verb(`idle ${kernelId} ${minutes}`, anAttachedKernel());
  }

  resize(kernelId: string, share: string) {
    return this._verb(`resize ${kernelId} ${share}`, anAttachedKernel());
  }

  take(kernelId: string, options: GpuPool.IAttachOptions) {
    this.options.push(options);
    return this._verb(`take ${kernelId} ${options.share}`, this.attached);
  }

  cancelQueue(kernelId: string) {
    return this._verb(`cancel ${kernelId}`, aKernel());
  }

  private async _verb(
    call: string,
    kernel: GpuPool.IKernel
  ): Promise<GpuPool.IKernel> {
    this.calls.push(call);
    if (this.refusal) {
      throw this.refusal;
    }
    this.list = [kernel];
    return kernel;
  }
}
