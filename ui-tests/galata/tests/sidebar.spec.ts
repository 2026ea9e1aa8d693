/** The sidebar's sections and their actions, by role and name. */
import { expect, test } from '../fixtures';
import { ADD, ADD_AGAIN } from '../programs';

const NOTEBOOK = 'work.ipynb';

for (const application of ['JupyterLab', 'Notebook 7'] as const) {
  test.describe(application, () => {
    test.use({ application });

    test('pool and kernels: attach, resize by slider, use, detach, undo', async ({
      gpu,
      stack
    }) => {
      await gpu.start(NOTEBOOK, ADD, ADD_AGAIN);

      await test.step('the pool: demand in words, devices as bars, nobody waits', async () => {
        await expect(gpu.toggle('Pool')).toHaveAccessibleName(
          'Pool 2 of 2 GPUs free'
        );
        await expect(gpu.section('Pool')).toContainText(
          'You can have up to 1 GPU now.'
        );
        await expect(gpu.devices).toHaveCount(2);
        for (const device of await gpu.devices.all()) {
          await expect(device).toContainText('software');
          await expect(device).toContainText('1 free');
          await expect(device.getByRole('meter')).toHaveAttribute(
            'aria-valuenow',
            '0'
          );
        }
        await expect(gpu.section('Queue')).toContainText('Nobody waits.');
      });

      await test.step('attach: the share is mine, in every view', async () => {
        await gpu.attach(NOTEBOOK, '0.25');
        const mine = gpu.sidebar
          .getByRole('list', { name: /^Shares of / })
          .getByRole('listitem');
        await expect(mine).toHaveCount(1);
        await expect(mine).toContainText('work.ipynb (you)');
        await expect(mine).toContainText('0.25');
        await expect(gpu.toggle('Pool')).toHaveAccessibleName(
          'Pool 1.75 of 2 GPUs free'
        );
        await expect(gpu.toolbarButton).toHaveText('0.25');
      });

      await test.step('live figures of compute, memory and network', async () => {
        await gpu.runAndWait(0, 'sum 768.0');
        const row = gpu.kernel(NOTEBOOK);
        await expect(
          row.getByRole('meter', { name: `Compute of ${NOTEBOOK}` })
        ).toHaveAttribute('aria-valuetext', /\d+ %/);
        await expect(
          row.getByRole('meter', { name: `GPU memory of ${NOTEBOOK}` })
        ).toHaveAttribute('aria-valuetext', /\d.*iB/);
        await expect(row.getByRole('img', { name: /network/i })).toBeVisible();
      });

      await test.step('resize by slider, asked for when it is let go', async () => {
        const slider = gpu.slider(NOTEBOOK);
        await slider.fill('500');
        await expect(gpu.toolbarButton).toHaveText('0.5');
        await expect(gpu.shareInput(NOTEBOOK)).toHaveValue('0.5');
        expect(await stack.freeMilli()).toBe(1500);
      });

      await test.step('detach, and undo with the arrays as they were', async () => {
        await gpu.button(NOTEBOOK, 'Detach').click();
        await expect(gpu.state(NOTEBOOK)).toHaveText('no GPU, memory kept');
        await expect(gpu.toggle('Pool')).toHaveAccessibleName(
          'Pool 2 of 2 GPUs free'
        );
        await gpu.button(NOTEBOOK, 'Undo').click();
        await expect(gpu.state(NOTEBOOK)).toHaveText('attached');
        await expect(gpu.toolbarButton).toHaveText('0.5');
        await gpu.runAndWait(1, 'sum 1024.0');
      });
    });

    test('queue: place, reason, cancel, and its turn', async ({
      gpu,
      stack
    }) => {
      const [first] = await Promise.all([
        stack.holdElsewhere('0.9'),
        stack.holdElsewhere('0.9')
      ]);
      await gpu.start(NOTEBOOK, ADD);
      await expect(gpu.toggle('Pool')).toHaveAccessibleName(
        'Pool 0.2 of 2 GPUs free'
      );

      const wait = async () => {
        await gpu.shareInput(NOTEBOOK).fill('0.5');
        await gpu.button(NOTEBOOK, 'Attach').click();
        await expect(gpu.state(NOTEBOOK)).toHaveText('queued');
      };
      await wait();
      await expect(gpu.kernel(NOTEBOOK)).toContainText(/Place 1 · .*\d/);
      const queue = gpu.section('Queue').getByRole('list', { name: 'Queue' });
      const entry = queue.getByRole('listitem', { name: 'work.ipynb (you)' });
      await expect(entry).toContainText('0.5 GPU');
      await gpu.button(NOTEBOOK, 'Cancel').click();
      await expect(gpu.state(NOTEBOOK)).toHaveText('no GPU');
      await expect(gpu.section('Queue')).toContainText('Nobody waits.');

      await wait();
      await stack.api('POST', `gpupool/api/kernels/${first}/detach`, {});
      await expect(gpu.state(NOTEBOOK)).toHaveText('attached');
    });
  });
}

test('ten kernels, and none', async ({ gpu, page, stack }) => {
  await page.goto('?reset');
  await gpu.openSidebar();
  await expect(gpu.section('Kernels')).toContainText('No kernel runs.');
  await expect(gpu.devices).toHaveCount(2);

  for (let number = 0; number < 10; number++) {
    await stack.api('POST', 'api/kernels', { name: 'python3' });
  }
  const more = gpu
    .section('Kernels')
    .getByRole('button', { name: '10 kernels without a GPU' });
  await expect(more).toHaveAttribute('aria-expanded', 'false');
  await more.click();
  const buttons = gpu
    .section('Kernels')
    .getByRole('button', { name: /^Attach/ });
  await expect(buttons).toHaveCount(10);
  await buttons.last().scrollIntoViewIfNeeded();
  await expect(buttons.last()).toBeInViewport();
});
