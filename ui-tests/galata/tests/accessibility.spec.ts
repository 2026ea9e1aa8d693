/** axe finds nothing wrong in what is ours, in each of JupyterLab's themes. What is JupyterLab's own is not looked at. */
import { expectAccessible } from '../accessibility';
import { expect, test } from '../fixtures';
import { ADD } from '../programs';

const NOTEBOOK = 'axe.ipynb';
const WIDGET = 'from jupyter_gpupool import GpuUsage\nGpuUsage()';

const THEMES = ['Light', 'Dark', 'Dark High Contrast'] as const;

for (const application of ['JupyterLab', 'Notebook 7'] as const) {
  test.describe(application, () => {
    test.use({ application });

    test('sidebar, toolbar, menu, result line, widget in each theme', async ({
      gpu,
      page,
      stack
    }) => {
      await gpu.start(NOTEBOOK, `%%gpu 0.2\n${ADD}`, WIDGET);
      await gpu.runAndWait(0, 'sum 768.0');
      await gpu
        .output(0)
        .getByText(/waits? for the GPU/)
        .first()
        .click();
      await gpu.run(1);
      const widget = page.getByRole('region', {
        name: 'GPU use of this kernel'
      });
      await expect(widget).toBeVisible();
      await stack.holdElsewhere('0.9');
      await gpu.attach(NOTEBOOK, '0.3');

      for (const theme of THEMES) {
        await gpu.setTheme(theme);
        await expectAccessible(gpu, `sidebar, ${theme}`, '.jp-GpuPool');
        await expectAccessible(
          gpu,
          `result line, ${theme}`,
          '.jp-GpuPool-cellResult'
        );
        await expectAccessible(gpu, `widget, ${theme}`, '.jp-GpuUsage');
        await expectAccessible(
          gpu,
          `toolbar, ${theme}`,
          '.jp-GpuPool-toolbarItem'
        );
        await gpu.toolbarButton.click();
        await expectAccessible(gpu, `menu, ${theme}`, '.lm-Menu');
        await page.keyboard.press('Escape');
      }
    });
  });
}

test('dashboard and status bar in each theme', async ({ gpu, page }) => {
  await page.goto('?reset&gpupool=cluster');
  for (const theme of THEMES) {
    await gpu.setTheme(theme);
    for (const [link, heading] of [
      ['Cluster', 'The whole pool'],
      ['Nodes', 'All nodes'],
      ['Quotas', 'Quotas and nodes']
    ]) {
      await gpu.dashboard
        .getByRole('link', { name: link, exact: true })
        .click();
      await expect(
        gpu.dashboard.getByRole('heading', { name: heading })
      ).toBeVisible();
      await expectAccessible(
        gpu,
        `dashboard, ${link}, ${theme}`,
        '.jp-GpuPool-dashboard'
      );
    }
    await expectAccessible(
      gpu,
      `status bar, ${theme}`,
      '#jp-main-statusbar [title^="Open the GPU pool"]'
    );
  }
});
