import { LabIcon } from '@jupyterlab/ui-components';

/**
 * A chip of which a quarter is taken. `jp-icon3` gives it the colour of the
 * theme. Few, thick strokes: it is mostly seen 16 pixels wide.
 */
const GPU_SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path fill-rule="evenodd" d="M4 2.5h8A1.5 1.5 0 0 1 13.5 4v8a1.5 1.5 0 0 1-1.5 1.5H4A1.5 1.5 0 0 1 2.5 12V4A1.5 1.5 0 0 1 4 2.5zM4 4v8h8V4z"/>
    <path d="M8 4h4v4H8z"/>
    <path d="M4.5 0.5H6v2H4.5zM10 0.5h1.5v2H10zM4.5 13.5H6v2H4.5zM10 13.5h1.5v2H10zM0.5 4.5h2V6h-2zM0.5 10h2v1.5h-2zM13.5 4.5h2V6h-2zM13.5 10h2v1.5h-2z"/>
  </g>
</svg>`;

export const gpuIcon = new LabIcon({
  name: 'jupyter-gpupool:gpu',
  svgstr: GPU_SVG
});
