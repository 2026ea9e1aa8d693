/** Attach, resize, detach and cancel, in the sidebar and in the toolbar's menu, without a mouse. */
import type { Locator } from '@playwright/test';
import { expect, test } from '../fixtures';
import type { GpuPage } from '../gpuPage';
import { ADD } from '../programs';

const NOTEBOOK = 'keys.ipynb';

/** Tab until something has the focus: it can be reached, and in how many steps at most. */
async function tabTo(gpu: GpuPage, target: Locator, most = 12): Promise<void> {
  // While a request is under way buttons take no presses.
  await expect(target).toBeEnabled();
  for (let step = 0; step < most; step++) {
    await gpu.page.keyboard.press('Tab');
    if (await target.evaluate(node => node === document.activeElement)) {
      return;
    }
  }
  await expect(target, `reached by ${most} presses of Tab`).toBeFocused();
}

for (const application of ['JupyterLab', 'Notebook 7'] as const) {
  test.describe(application, () => {
    test.use({ application });

    test('the keyboard is enough', async ({ gpu, stack }) => {
      const { keyboard } = gpu.page;
      await gpu.start(NOTEBOOK, ADD);

      await test.step('attach', async () => {
        await gpu.toggle('Kernels').focus();
        await tabTo(gpu, gpu.shareInput(NOTEBOOK));
        await keyboard.press('Control+A');
        await keyboard.type('0.3');
        await tabTo(gpu, gpu.button(NOTEBOOK, 'Attach'), 1);
        await keyboard.press('Enter');
        await expect(gpu.state(NOTEBOOK)).toHaveText('attached');
        // The focus stays through polls and the change of the button.
        await expect(gpu.button(NOTEBOOK, 'Detach')).toBeFocused();
      });

      await test.step('resize', async () => {
        await gpu.toggle('Kernels').focus();
        await tabTo(gpu, gpu.slider(NOTEBOOK));
        await keyboard.press('ArrowRight');
        await keyboard.press('ArrowRight');
        // Enter asks at once; else it is asked for when the keys rest.
        await keyboard.press('Enter');
        await expect(gpu.toolbarButton).toHaveText('0.32');
        await expect(gpu.slider(NOTEBOOK)).toBeFocused();
      });

      await test.step('detach', async () => {
        await tabTo(gpu, gpu.button(NOTEBOOK, 'Detach'));
        await keyboard.press('Space');
        await expect(gpu.state(NOTEBOOK)).toHaveText('no GPU, memory kept');
      });

      await test.step('cancel', async () => {
        for (let number = 0; number < 2; number++) {
          await stack.holdElsewhere('1');
        }
        await expect(gpu.toggle('Pool')).toHaveAccessibleName(
          'Pool 0 of 2 GPUs free'
        );
        await gpu.toggle('Kernels').focus();
        await tabTo(gpu, gpu.button(NOTEBOOK, 'Attach'));
        await keyboard.press('Enter');
        await expect(gpu.state(NOTEBOOK)).toHaveText('queued');
        await expect(gpu.button(NOTEBOOK, 'Cancel')).toBeFocused();
        await expect(gpu.button(NOTEBOOK, 'Cancel')).toBeEnabled();
        await keyboard.press('Enter');
        await expect(gpu.section('Queue')).toContainText('Nobody waits.');
      });
    });

    test('the menu of the toolbar button by keys', async ({ gpu }) => {
      const { keyboard } = gpu.page;
      await gpu.start(NOTEBOOK, ADD);
      await gpu.toolbarButton.focus();
      await keyboard.press('Enter');
      await expect(gpu.item('Attach 0.2 GPU')).toBeVisible();
      await keyboard.press('Escape');
      await expect(gpu.toolbarButton).toBeFocused();

      await keyboard.press('ArrowDown');
      await keyboard.press('Enter');
      await expect(gpu.toolbarButton).toHaveText('0.2');
      await expect(gpu.toolbarButton).toBeFocused();
    });
  });
}
