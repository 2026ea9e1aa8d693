import type { JupyterFrontEnd } from '@jupyterlab/application';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { CommandIDs } from '../../commands/ids';
import { KernelActions } from '../../commands/kernelActions';
import { addResetCommand } from '../../commands/resetCommand';
import { GpuPoolModel } from '../../model/model';
import { EMPTY_STATE, withSnapshot } from '../../model/reduce';
import { answerDialog } from '../dialog';
import { aKernel, anAttachedKernel, aPool } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let commands: CommandRegistry;

beforeEach(async () => {
  server = new Server();
  server.list = [anAttachedKernel()];
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  commands = new CommandRegistry();
  const app = {
    commands,
    shell: { currentWidget: null }
  } as unknown as JupyterFrontEnd;
  const trans = nullTranslator.load('jupyter_gpupool');
  addResetCommand(new KernelActions(app, model, trans));
  await model.refresh();
});

afterEach(() => {
  model.dispose();
  document.body.replaceChildren();
});

const asked = () => server.calls.filter(call => call.startsWith('reset'));

async function press(label: string): Promise<void> {
  const running = commands.execute(CommandIDs.reset, { kernelId: 'k1' });
  const said = await answerDialog(label);
  expect(said).toContain('arrays in GPU memory are lost');
  expect(said).toContain('Python variables stay');
  await running;
}

it('asks first, and does nothing when that is not wanted', async () => {
  await press('Cancel');
  expect(asked()).toEqual([]);
});

it('ends the session when it is confirmed', async () => {
  await press('Reset');
  expect(asked()).toEqual(['reset k1']);
  expect(model.kernel('k1')?.reason).toBe('reset');
});

it('does not ask whoever has asked', async () => {
  await commands.execute(CommandIDs.reset, { kernelId: 'k1', confirmed: true });
  expect(asked()).toEqual(['reset k1']);
});

it('is offered for a kernel with a session, held or parked', async () => {
  const enabled = () =>
    commands.isEnabled(CommandIDs.reset, { kernelId: 'k1' });
  expect(enabled()).toBe(true);
  server.list = [aKernel({ state: 'parked', session_id: 's1' })];
  await model.refresh();
  expect(enabled()).toBe(true);
  server.list = [aKernel()];
  await model.refresh();
  expect(enabled()).toBe(false);
});

it.each([true, false])(
  'a wrong setting is the problem, whether the pool answers (%p) or not',
  ok => {
    const pool = aPool({ ok, wrong_setting: 'c.X.user is wrong.' });
    const { problem } = withSnapshot(EMPTY_STATE, pool, [], 0, 1);
    expect(problem).toEqual({ kind: 'setting', message: 'c.X.user is wrong.' });
  }
);
