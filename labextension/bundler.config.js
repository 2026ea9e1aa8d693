const { SwcJsMinimizerRspackPlugin } = require('@rspack/core');

/*
 * What JupyterLab's builder leaves as it is written: style sheets, which become
 * texts in the scripts. Without spaces and comments they are a third smaller.
 */
const MINIFY = {
  loader: 'builtin:lightningcss-loader',
  options: { minify: true, errorRecovery: false }
};

const INLINE = { loader: require.resolve('./inline.imports.js') };

/** Puts both loaders below css-loader. */
class SmallStyleSheets {
  apply(compiler) {
    const rule = compiler.options.module.rules.find(
      one => Array.isArray(one?.use) && one.use.includes('css-loader')
    );
    if (!rule) {
      throw new Error('The builder has no rule for style sheets any more.');
    }
    rule.use = rule.use.flatMap(loader =>
      loader === 'css-loader'
        ? [{ loader, options: { importLoaders: 2 } }, MINIFY, INLINE]
        : [loader]
    );
  }
}

/*
 * For browsers since 2020, which know arrow functions: what the builder itself
 * brings has none. Nothing here or there makes an object with such a function.
 */
const MINIMIZER = new SwcJsMinimizerRspackPlugin({
  minimizerOptions: {
    ecma: 2020,
    compress: {
      ecma: 2020,
      passes: 4,
      unsafe_arrows: true,
      unsafe_methods: true
    },
    mangle: true,
    format: { comments: false }
  }
});

module.exports = {
  optimization: { minimizer: [MINIMIZER] },
  plugins: [new SmallStyleSheets()]
};
