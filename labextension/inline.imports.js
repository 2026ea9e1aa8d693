/*
 * Puts the style sheets that one imports into its place: each would be a
 * module of its own otherwise, and rules could not be joined across them.
 */
const { readFileSync } = require('fs');
const { join } = require('path');

const IMPORT = /^@import url\('([\w-]+\.css)'\);$/gm;

module.exports = function (source) {
  return source.replace(IMPORT, (_, name) => {
    const path = join(this.context, name);
    this.addDependency(path);
    return readFileSync(path, 'utf8');
  });
};
