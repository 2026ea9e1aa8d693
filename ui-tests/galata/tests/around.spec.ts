/** Toolbar button and its menu, status bar, Running panel, palette, settings, and what a cell used. */
import { expect, test } from '../fixtures';
import { ADD } from '../programs';

const NOTEBOOK = 'around.ipynb';

for (const application of ['JupyterLab', 'Notebook 7'] as const) {
  test.describe(application, () => {
    test.use({ application });

    test('toolbar menu, and what a cell used', async ({ gpu, page, stack }) => {
      stack.writeNotebook(NOTEBOOK, `%%gpu 0.2\n${ADD}`);
      await gpu.open(NOTEBOOK);

      await test.step('attach, resize, choose how long it may idle, detach, undo', async () => {
        await gpu.choose('Attach 0.5 GPU');
        await expect(gpu.toolbarButton).toHaveText('0.5');
        await expect(gpu.toolbarButton).toHaveAccessibleName(
          'GPU of this notebook: attached, 0.5'
        );
        await gpu.choose('Resize', 'Resize to 0.25 GPU');
        await expect(gpu.toolbarButton).toHaveText('0.25');
        await gpu.choose('Give Back When Idle', 'GPU Idle for 30 min');
        await expect
          .poll(async () => (await stack.kernels())[0].idle?.choice_minutes)
          .toBe(30);
        await gpu.choose('Detach GPU');
        await expect(gpu.toolbarButton).toHaveText('GPU');
        await gpu.choose('Undo: Attach 0.25 GPU Again');
        await expect(gpu.toolbarButton).toHaveText('0.25');
        await gpu.choose('Detach GPU');
        await expect(gpu.toolbarButton).toHaveText('GPU');
      });

      await test.step('the result line opens by key and is saved', async () => {
        await gpu.runAndWait(0, 'sum 768.0');
        const line = gpu
          .output(0)
          .getByText(
            /^0\.2 software GPU .* device time .* peak memory .* waits? for the GPU/
          );
        await expect(line).toBeVisible();
        const bytes = gpu
          .output(0)
          .getByRole('row', { name: /^To the device/ });
        await expect(bytes).toBeHidden();
        await line.focus();
        await page.keyboard.press('Enter');
        await expect(bytes).toBeVisible();

        await page.keyboard.press('Control+s');
        await expect
          .poll(async () => {
            const { cells } = await stack.readNotebook(NOTEBOOK);
            return cells[0].outputs.flatMap(({ data }) =>
              Object.keys(data ?? {})
            );
          })
          .toContain('application/vnd.gpupool.cell+json');
        // `%%gpu` is in the cell; what was attached by hand is in the notebook.
        const { metadata } = await stack.readNotebook(NOTEBOOK);
        expect(metadata.gpupool).toMatchObject({ share: '0.25' });
      });
    });
  });
}

test('a menu that was opened before the page knows the kernel can be used as soon as it does', async ({
  gpu,
  page,
  stack
}) => {
  stack.writeNotebook(NOTEBOOK, ADD);
  let tell = () => {};
  const told = new Promise<void>(resolved => (tell = resolved));
  // The first answers about kernels are late.
  await page.route('**/gpupool/api/kernels*', async route => {
    await told;
    await route.continue();
  });
  await gpu.open(NOTEBOOK);
  await gpu.toolbarButton.click();
  const attach = gpu.item('Attach 0.5 GPU');
  await expect(attach).toBeVisible();
  tell();
  await expect(attach).not.toHaveClass(/lm-mod-disabled/);
  await attach.click();
  await expect(gpu.toolbarButton).toHaveText('0.5');
});

test('status bar, Running panel, palette', async ({ gpu, page, stack }) => {
  await gpu.start(NOTEBOOK, ADD);

  await test.step('the status bar tells the share of the current kernel and leads to the sidebar', async () => {
    await expect(
      page.getByRole('button', { name: '2 of 2 GPUs free', exact: true })
    ).toBeVisible();
    await gpu.attach(NOTEBOOK, '0.2');
    const item = page.getByRole('button', { name: 'GPU: 0.2', exact: true });
    await expect(item).toBeVisible();
    await page.getByRole('tab', { name: 'GPU pool' }).click();
    await expect(gpu.sidebar).toBeHidden();
    await item.press('Enter');
    await expect(gpu.sidebar).toBeVisible();
  });

  await test.step('the Running panel lists it and releases all', async () => {
    await page
      .getByRole('tab', { name: /Running Terminals and Kernels/ })
      .click();
    await page.getByRole('heading', { name: /GPU Shares/ }).hover();
    await page.getByRole('button', { name: 'Release All' }).click();
    await page
      .getByRole('dialog')
      .getByRole('button', { name: 'Release All' })
      .click();
    await expect(gpu.toolbarButton).toHaveText('GPU');
    expect(await stack.freeMilli()).toBe(2000);
  });

  await test.step('the palette attaches', async () => {
    await gpu.cell(0).locator('.cm-content').click();
    await page.keyboard.press('Control+Shift+C');
    await page
      .getByRole('textbox', { name: 'SEARCH', exact: true })
      .fill('attach gpu');
    await page
      .locator('.lm-CommandPalette-item')
      .getByText('Attach 0.2 GPU', { exact: true })
      .click();
    await expect(gpu.toolbarButton).toHaveText('0.2');
  });

  await test.step('each command says what it takes', async () => {
    const undescribed = await page.evaluate(async () => {
      const { commands } = window.jupyterapp;
      const ours = commands
        .listCommands()
        .filter(id => id.startsWith('gpupool:'));
      const described = await Promise.all(
        ours.map(async id => (await commands.describedBy(id)).args)
      );
      return [
        ours.length,
        ours.filter((_, index) => described[index] === null)
      ];
    });
    expect(undescribed).toEqual([expect.any(Number), []]);
    expect(undescribed[0]).toBeGreaterThan(12);
  });
});

test('settings: what is set is what Attach asks for', async ({
  gpu,
  page,
  stack
}) => {
  stack.writeNotebook(NOTEBOOK, ADD);
  await gpu.open(NOTEBOOK);
  await page.evaluate(() =>
    window.jupyterapp.commands.execute('settingeditor:open', {
      query: 'GPU Pool'
    })
  );
  const form = page.getByRole('tabpanel', { name: 'Settings' });
  const fields = form.getByRole('group', { name: 'GPU Pool' });
  // JupyterLab's form names its fields by headings that stand above them.
  const share = fields.getByRole('textbox').first();
  await expect(share).toHaveValue('');
  for (const name of [
    'Default share',
    'Default project',
    'Idle minutes',
    'Warn seconds'
  ]) {
    await expect(fields.getByRole('heading', { name })).toBeVisible();
  }
  await share.fill('0.35');
  await share.press('Tab');
  await page.getByRole('tab', { name: NOTEBOOK }).click();
  await expect(async () => {
    await gpu.toolbarButton.click();
    await expect(gpu.item('Attach 0.35 GPU')).toBeVisible({ timeout: 2000 });
  }).toPass();
  await gpu.item('Attach 0.35 GPU').click();
  await expect(gpu.toolbarButton).toHaveText('0.35');
});
