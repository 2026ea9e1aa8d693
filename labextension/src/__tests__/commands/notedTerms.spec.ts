import type { JupyterFrontEnd } from '@jupyterlab/application';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { GpuPoolError } from '../../api/client';
import type { GpuPool } from '../../api/types';
import { addCommands, CommandIDs } from '../../commands/commands';
import { GpuPoolModel } from '../../model/model';
import { answerDialog, theDialog } from '../dialog';
import { aKernel, anAttachedKernel } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let commands: CommandRegistry;
let noted: GpuPool.IAttachOptions | null;
let written: GpuPool.IAttachOptions[];

beforeEach(() => {
  noted = null;
  written = [];
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  commands = new CommandRegistry();
  const currentWidget = {
    sessionContext: { session: { kernel: { id: 'k1' } } }
  };
  addCommands(
    { commands, shell: { currentWidget } } as unknown as JupyterFrontEnd,
    model,
    nullTranslator.load('jupyter_gpupool'),
    { of: () => noted, remember: (_, options) => written.push(options) }
  );
});

afterEach(() => {
  model.dispose();
  document.body.replaceChildren();
});

async function now(...kernels: GpuPool.IKernel[]): Promise<void> {
  server.list = kernels;
  await model.refresh();
}

describe('what a notebook was attached with', () => {
  it('is written when a person attaches, with its terms and without the wait', async () => {
    await now(aKernel());
    await commands.execute(CommandIDs.attach, {
      share: '0.5',
      count: 2,
      project: 'research/vision',
      wait: 5
    });
    expect(written).toEqual([
      { share: '0.5', count: 2, project: 'research/vision' }
    ]);
  });

  it('is not written when the pool refuses', async () => {
    await now(aKernel());
    server.refusal = new GpuPoolError('full', 'full', 409);
    await commands.execute(CommandIDs.attach, { quiet: true });
    expect(written).toEqual([]);
  });

  it('is what Attach asks for the next time', async () => {
    noted = { share: '0.3', count: 2, project: 'a' };
    await now(aKernel());
    expect(commands.label(CommandIDs.attach)).toBe('Attach 2 × 0.3 GPU');
    await commands.execute(CommandIDs.attach);
    expect(server.options).toEqual([noted]);
  });

  it('gives way to what is said now, but for the project', async () => {
    noted = { share: '0.3', count: 2, project: 'a' };
    await now(aKernel());
    await commands.execute(CommandIDs.attach, { share: '1' });
    await commands.execute(CommandIDs.attach, { share: '1', project: 'b' });
    expect(server.options).toEqual([
      { share: '1', project: 'a' },
      { share: '1', project: 'b' }
    ]);
  });

  it.each(['0.3', '0.4'])(
    'is asked for but for its share, whatever that is (%s)',
    async share => {
      noted = { share: '0.3', count: 2, strict: true, kind: 'guaranteed' };
      await now(aKernel());
      const answered = commands.execute(CommandIDs.attachWith);
      const dialog = await theDialog('Attach');
      dialog.querySelector('input')!.value = share;
      const said = await answerDialog('Attach');
      await answered;
      expect(said).toContain('2.5GiB (2 GPUs, hard cap, and more)');
      expect(server.options).toEqual([{ ...noted, share }]);
      expect(written).toEqual([{ ...noted, share }]);
    }
  );

  it('changes with the size of the share', async () => {
    noted = { share: '0.3', project: 'a' };
    await now(anAttachedKernel());
    await commands.execute(CommandIDs.resize, { share: '0.4' });
    expect(written).toEqual([{ share: '0.4', project: 'a' }]);
  });
});
