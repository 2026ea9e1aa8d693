/** axe finds nothing wrong in a sidebar full of kernels and GPUs, nor in its introduction, in each theme. */
import { expectAccessible } from '../accessibility';
import { expect, test } from '../fixtures';
import { ADD } from '../programs';

const NOTEBOOK = 'crowd.ipynb';
const THEMES = ['Light', 'Dark', 'Dark High Contrast'] as const;

test.use({ stackOptions: ['--software-gpus', '12'] });

test('introduction, lines, groups, strips, filter in each theme', async ({
  gpu,
  stack
}) => {
  await stack.holdElsewhere('0.3');
  for (let number = 0; number < 5; number++) {
    await stack.api('POST', 'api/kernels', { name: 'python3' });
  }
  await gpu.start(NOTEBOOK, ADD);
  const group = gpu.sidebar.getByRole('button', {
    name: '5 kernels without a GPU'
  });
  await group.click();
  await expect(
    gpu.sidebar
      .getByRole('list', { name: 'Kernels without a GPU' })
      .getByRole('listitem')
  ).toHaveCount(5);
  await expect(
    gpu.sidebar.getByRole('meter', { name: /^Compute in use on node/ })
  ).toBeVisible();
  for (const theme of THEMES) {
    await gpu.setTheme(theme);
    await expectAccessible(gpu, `crowd, ${theme}`, '.jp-GpuPool');
  }

  // What is one's own stays in sight whatever is filtered.
  await gpu.attach(NOTEBOOK, '0.25');
  await gpu.sidebar
    .getByRole('searchbox', { name: 'Filter the GPUs' })
    .fill('nothing like that');
  await expect(gpu.section('Pool')).toContainText(
    'No GPU of the pool is like that.'
  );
  for (const theme of THEMES) {
    await gpu.setTheme(theme);
    await expectAccessible(gpu, `filtered, ${theme}`, '.jp-GpuPool');
  }
});
