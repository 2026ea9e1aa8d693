import { GpuPoolModel } from '../../model/model';
import { FirstVisit } from '../../plugins/firstVisit';
import { aKernel, anAttachedKernel } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let said: [string, string, unknown][];

/** The settings of a person; `seen` is what the model reads of them. */
function visit(): FirstVisit {
  return new FirstVisit(model, {
    load: async () => ({}) as never,
    set: async (plugin, key, value) => {
      said.push([plugin, key, value]);
    }
  });
}

beforeEach(() => {
  said = [];
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
});

afterEach(() => model.dispose());

it('is shown when the settings are known, not before', async () => {
  const first = visit();
  expect(first.shown).toBe(false);
  await Promise.resolve();
  expect(first.shown).toBe(true);
  first.done();
  expect(said).toEqual([['jupyter-gpupool:plugin', 'introduction', false]]);
});

it('goes away by itself with the first GPU', async () => {
  visit();
  server.list = [aKernel()];
  await model.refresh();
  expect(said).toEqual([]);
  server.list = [anAttachedKernel()];
  await model.refresh();
  await model.refresh();
  expect(said).toHaveLength(1);
});
