import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { act } from '@testing-library/react';
import { GpuPoolModel } from '../../model/model';
import { statusPlugin } from '../../plugins/status';
import { aPool } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let item: ReactWidget;

beforeEach(async () => {
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  const app = {
    shell: { currentWidget: null },
    commands: new CommandRegistry()
  };
  const bar = {
    registerStatusItem: (_: string, given: { item: Widget }) => {
      item = given.item as ReactWidget;
    }
  };
  void statusPlugin.activate(
    app as unknown as JupyterFrontEnd,
    model,
    bar as unknown as IStatusBar,
    null,
    null
  );
  await act(async () => Widget.attach(item, document.body));
});

afterEach(async () => {
  await act(async () => item.dispose());
  model.dispose();
});

/** What the item says once the pool has answered so. */
async function said(part: Parameters<typeof aPool>[0]): Promise<string | null> {
  server.answer = aPool(part);
  await act(async () => {
    await model.refresh();
    MessageLoop.flush();
    await item.renderPromise;
  });
  return item.node.textContent;
}

it('says what the pool has left', async () => {
  expect(await said({})).toBe('1 of 1 GPU free');
  // As much as can be asked for.
  const totals = { milli: 1000, free_milli: 795 };
  expect(await said({ totals })).toBe('0.79 of 1 GPU free');
});

it('tells a server without a pool from one with a wrong setting', async () => {
  const none = { ok: false, devices: [], wrong_setting: 'No pool is set.' };
  expect(await said({ ...none, startable: 'lends' })).toBe('GPU: no pool');
  expect(await said({ ...none, startable: 'no' })).toBe(
    'GPU pool: wrong setting'
  );
});
