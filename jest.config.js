// JupyterLab's packages are ES modules without saying so, and Jest loads
// CommonJS: these are compiled on the way, everything else is taken as it is.
const esModules = [
  '@codemirror',
  '@jupyter/',
  '@jupyterlab/',
  '@microsoft/fast',
  'exenv-es6',
  'lib0',
  'nanoid',
  'vscode-ws-jsonrpc',
  'y-protocols',
  'y-websocket',
  'yjs'
].join('|');

const compile = [
  'ts-jest',
  {
    diagnostics: false,
    tsconfig: {
      allowJs: true,
      esModuleInterop: true,
      isolatedModules: true,
      jsx: 'react',
      module: 'commonjs',
      target: 'ES2020'
    }
  }
];

// Tests compile the sources, of which this is one.
require('./labextension/generate.js');

module.exports = {
  testEnvironment: '<rootDir>/labextension/jest-environment.js',
  setupFilesAfterEnv: ['<rootDir>/labextension/jest-setup.js'],
  // How long a test waits for what must come, on whatever machine this is.
  testTimeout: 60_000,
  roots: ['<rootDir>/labextension/src'],
  testRegex: '/__tests__/.*\\.spec\\.tsx?$',
  moduleNameMapper: {
    '\\.(css|less)$': '<rootDir>/labextension/src/__tests__/empty.ts',
    // Icons come as text from the bundler; what they draw is not tested here.
    '\\.svg$': '<rootDir>/labextension/src/__tests__/icon.ts'
  },
  transform: {
    '\\.tsx?$': compile,
    [`node_modules/(${esModules}).*\\.js$`]: compile
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules}))`]
};
