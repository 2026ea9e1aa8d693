const { configure } = require('@testing-library/dom');

// As long as Playwright waits. Longer costs nothing but where a test fails.
configure({ asyncUtilTimeout: 20_000 });
