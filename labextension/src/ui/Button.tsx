import type { ButtonHTMLAttributes } from 'react';
import { h } from './jsx';

interface IButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** What it stands out as; most buttons do not. */
  tone?: 'accept' | 'reject' | 'warn';
}

/** A button as all of ours look. */
export function Button({ tone, ...rest }: IButtonProps): JSX.Element {
  return (
    <button
      type="button"
      className={`jp-GpuPool-button jp-mod-styled${tone ? ` jp-mod-${tone}` : ''}`}
      {...rest}
    />
  );
}
