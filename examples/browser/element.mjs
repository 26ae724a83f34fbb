// Elements, made in one expression. Text goes in as text: nothing a visitor pastes becomes markup.

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
