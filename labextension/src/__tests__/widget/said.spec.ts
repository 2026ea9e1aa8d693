import { firstClause, isKnown, render } from '../../widget/said';

const said = {
  code: 'clauses',
  params: {},
  text: 'taken back; memory is kept',
  first: 'taken back'
};

test('the words of a sentence come with the answer of the server', () => {
  expect(render(said)).toBe('taken back; memory is kept');
  expect(firstClause(said)).toBe('taken back');
});

test('without words an id stands for itself', () => {
  expect(render({ code: 'full', params: {} })).toBe('full');
  expect(firstClause({ code: 'full', params: {} })).toBe('full');
  expect(isKnown()).toBe(false);
});
