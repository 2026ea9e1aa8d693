import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { CommandIDs } from '../commands/ids';
import type { IContext } from '../components/context';
import { Folds } from '../model/folds';
import { GpuPoolModel } from '../model/model';
import { Server, Services } from './server';

/** What parts of the sidebar are given, and which commands they called. */
export class SidebarFixture {
  constructor() {
    const commands = new CommandRegistry();
    for (const id of Object.values(CommandIDs)) {
      commands.addCommand(id, {
        execute: args => this.executed.push([id, args])
      });
    }
    this.context = {
      model: this.model,
      commands,
      trans: nullTranslator.load('jupyter_gpupool'),
      folds: new Folds()
    };
  }

  dispose(): void {
    this.model.dispose();
  }

  readonly server = new Server();
  readonly model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: this.server,
    standby: 'never'
  });
  readonly executed: [string, unknown][] = [];
  readonly context: IContext;
}
