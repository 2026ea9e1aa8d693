import { expect, test } from '../fixtures';
import { ADD } from '../programs';

for (const application of ['JupyterLab', 'Notebook 7'] as const) {
  test.describe(application, () => {
    test.use({ application });

    test('attach, run, detach', async ({ gpu }) => {
      await gpu.start('work.ipynb', ADD);
      await gpu.attach('work.ipynb', '0.2');
      await gpu.runAndWait(0, 'sum 768.0');
      await gpu.button('work.ipynb', 'Detach').click();
      await expect(gpu.state('work.ipynb')).toHaveText('parked');
    });
  });
}
