// Runs before the theme's own scripts.
// The icon script watches the page and would replace the Play widget's icons while the widget still owns them.
window.FontAwesomeConfig = { observeMutations: false };
// Widgets are loaded from the book's own copy, never from another host.
window.require = { baseUrl: document.documentElement.dataset.content_root + "_static/vendor/widgets" };
