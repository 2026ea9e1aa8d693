import { nullTranslator } from '@jupyterlab/translation';
import { deviceName, deviceNames, deviceOfNode } from '../../text/devices';

const trans = nullTranslator.load('jupyter_gpupool');

it.each([
  ['vm/0', 'GPU 0 on vm'],
  ['rack/vm/12', 'GPU 12 on rack/vm'],
  ['GPU-1f2e', 'GPU-1f2e'],
  ['vm/mig-1', 'vm/mig-1']
])('%s is %s', (id, name) => {
  expect(deviceName(id, trans)).toBe(name);
});

it('names several by their nodes', () => {
  expect(deviceNames(['a/0', 'a/1'], trans)).toBe('GPU 0 and 1 on a');
  expect(deviceNames(['a/0', 'b/3'], trans)).toBe('GPU 0 on a, GPU 3 on b');
  expect(deviceNames(['strange'], trans)).toBe('strange');
});

it('leaves out a node that stands above', () => {
  expect(deviceOfNode({ id: 'a/3', node: 'a' }, trans)).toBe('GPU 3');
  expect(deviceOfNode({ id: 'a/3', node: 'b' }, trans)).toBe('a/3');
});
