import js from '@eslint/js';
import jupyterPlugin from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import { defineConfig } from 'eslint/config';
import globals from 'globals';
import tseslint from 'typescript-eslint';

export default defineConfig([
  {
    ignores: [
      '**/lib/**',
      '**/*.js',
      '**/*.d.ts',
      // Made by openapi-typescript.
      'labextension/src/api/types.ts'
    ]
  },
  js.configs.recommended,
  tseslint.configs.recommended,
  { plugins: { jupyter: jupyterPlugin } },
  jupyterPlugin.configs.recommended,
  {
    files: ['labextension/src/**/*.ts', 'labextension/src/**/*.tsx'],
    languageOptions: {
      globals: globals.browser,
      parserOptions: {
        project: './labextension/tsconfig.check.json',
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/naming-convention': [
        'error',
        {
          selector: 'interface',
          format: ['PascalCase'],
          custom: { regex: '^I[A-Z]', match: true }
        }
      ],
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-namespace': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { args: 'none' }],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true }
      ],
      // The whole bundle is 40 kB and all of it is shown at start.
      'jupyter/prefer-lazy-imports': 'off',
      curly: ['error', 'all'],
      eqeqeq: 'error'
    }
  },
  {
    files: ['labextension/*.mjs'],
    languageOptions: { globals: globals.node }
  },
  {
    files: ['ui-tests/galata/**/*.ts'],
    languageOptions: {
      globals: { ...globals.node, ...globals.browser },
      parserOptions: {
        project: './ui-tests/galata/tsconfig.json',
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      // Fixtures that need no other begin with `({}, use)`.
      'no-empty-pattern': 'off',
      curly: ['error', 'all'],
      eqeqeq: 'error'
    }
  },
  {
    // The widget is one file for any page, most of which have no translator of ours.
    files: ['labextension/src/widget/**'],
    rules: { 'jupyter/no-untranslated-string': 'off' }
  },
  {
    // Tests are read by developers, not by people who use the extension.
    files: ['**/__tests__/**', 'ui-tests/**'],
    rules: {
      'jupyter/command-described-by': 'off',
      'jupyter/no-untranslated-string': 'off'
    }
  },
  prettier
]);
