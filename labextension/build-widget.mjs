/*
 * Builds the live widget: one ES module and one style sheet, which the Python
 * half hands to any page that shows it. The input is what `tsc` has compiled.
 */
import console from 'node:console';
import { dirname, resolve } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { rspack } from '@rspack/core';

const HERE = dirname(fileURLToPath(import.meta.url));

const compiler = rspack({
  mode: 'production',
  target: ['web', 'es2020'],
  context: HERE,
  devtool: false,
  entry: {
    usage: [
      './style/stateColors.css',
      './style/widget.css',
      './lib/widget/usage.js'
    ]
  },
  output: {
    path: resolve(HERE, '../jupyter_gpupool/widget/static'),
    filename: '[name].js',
    cssFilename: '[name].css',
    clean: true,
    module: true,
    library: { type: 'modern-module' }
  },
  resolve: {
    // The pool's words come with the server's answers: src/widget/said.ts.
    alias: {
      [resolve(HERE, 'lib/text/sentence.js')]: resolve(
        HERE,
        'lib/widget/said.js'
      )
    }
  },
  module: { rules: [{ test: /\.css$/, type: 'css/global' }] }
});

compiler.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString({ preset: 'errors-only' }));
    process.exitCode = 1;
  }
  compiler.close(() => undefined);
});
