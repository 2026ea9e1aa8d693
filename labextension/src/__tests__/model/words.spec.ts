import { hasWords } from '../../api/catalogue';
import { GpuPoolModel } from '../../model/model';
import { reasonSentence } from '../../text/words';
import { CATALOGUE } from '../catalogue';
import { Server, Services } from '../server';

const server = new Server();
const asked = () => server.calls.filter(call => call === 'catalogue').length;
let model: GpuPoolModel;

afterAll(() => model.dispose());

it('shows an id where the server has no words, and asks again at the next poll', async () => {
  server.words = null;
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  await model.refresh();
  const before = asked();
  expect(before).toBeGreaterThan(0);
  expect(model.state.ready).toBe(true);
  expect(model.state.problem).toBeNull();
  expect(reasonSentence('admin')).toBe('admin');
  await model.refresh();
  expect(asked()).toBeGreaterThan(before);
});

it('has the words before the first sentence, and asks once', async () => {
  server.words = CATALOGUE;
  const said: string[] = [];
  model.changed.connect(() => said.push(reasonSentence('admin')));
  await model.refresh();
  expect(hasWords()).toBe(true);
  expect(said[0]).toBe('Taken back by an administrator.');
  const before = asked();
  await model.refresh();
  expect(asked()).toBe(before);
});
