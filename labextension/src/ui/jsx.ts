/**
 * What JSX becomes: named here, so that a minifier can give it a short name.
 * `React.createElement` at every element is a thirtieth of the bundle.
 */
import React from 'react';

export const h = React.createElement;
export const Fragment = React.Fragment;
