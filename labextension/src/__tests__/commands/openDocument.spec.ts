import { showErrorMessage } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { openDocument } from '../../commands/openDocument';

jest.mock('@jupyterlab/apputils', () => ({ showErrorMessage: jest.fn() }));

describe('openDocument', () => {
  const trans = nullTranslator.load('jupyter_gpupool');

  it('opens the path', async () => {
    const commands = new CommandRegistry();
    const opened: unknown[] = [];
    commands.addCommand('docmanager:open', {
      execute: args => opened.push(args.path)
    });
    await openDocument(commands, 'a.ipynb', trans);
    expect(opened).toEqual(['a.ipynb']);
    expect(showErrorMessage).not.toHaveBeenCalled();
  });

  it('says it when the document is gone', async () => {
    const commands = new CommandRegistry();
    commands.addCommand('docmanager:open', {
      execute: () => Promise.reject(new Error('No such file'))
    });
    await openDocument(commands, 'gone.ipynb', trans);
    expect(showErrorMessage).toHaveBeenCalledWith(
      'gone.ipynb cannot be opened',
      expect.objectContaining({ message: 'No such file' })
    );
  });
});
